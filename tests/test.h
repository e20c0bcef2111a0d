/*
 * The test frame: TEST(name) { ... EXPECT(...); } in any number of files linked into one program; test_main.c runs them
 * all and prints a line per failure and a last line "NAME: P passed, F failed". A failed EXPECT ends its test.
 */
#ifndef TEST_H
#define TEST_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct test {
    const char *name;
    void (*run)(void);
    struct test *next;
};

void test_register(struct test *test);
/* Records the failure and leaves the test (longjmp). */
void test_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4), noreturn));
/* Leaves the test and counts it as not run, with the reason: only for what the machine lacks (a second compiler). */
void test_skip(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#define TEST(test_name)                                                                                                \
    static void test_run_##test_name(void);                                                                            \
    __attribute__((constructor)) static void test_add_##test_name(void)                                                \
    {                                                                                                                  \
        static struct test entry = {#test_name, test_run_##test_name, NULL};                                           \
        test_register(&entry);                                                                                         \
    }                                                                                                                  \
    static void test_run_##test_name(void)

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            test_fail(__FILE__, __LINE__, "%s", #condition);                                                           \
    } while (0)

/* With a message that tells the values. */
#define EXPECT_THAT(condition, ...)                                                                                    \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            test_fail(__FILE__, __LINE__, __VA_ARGS__);                                                                \
    } while (0)

#define EXPECT_INT(expression, wanted)                                                                                 \
    do {                                                                                                               \
        long long got_ = (long long)(expression), wanted_ = (long long)(wanted);                                       \
        if (got_ != wanted_)                                                                                           \
            test_fail(__FILE__, __LINE__, "%s is %lld, wanted %lld", #expression, got_, wanted_);                      \
    } while (0)

#define EXPECT_TEXT(expression, part)                                                                                  \
    do {                                                                                                               \
        const char *text_ = (expression), *part_ = (part);                                                             \
        if (strstr(text_, part_) == NULL)                                                                              \
            test_fail(__FILE__, __LINE__, "\"%s\" does not contain \"%s\"", text_, part_);                             \
    } while (0)

/* For dg_ calls: expect success, or a status together with words of its sentence. */
#define EXPECT_OK(call)                                                                                                \
    do {                                                                                                               \
        dg_status got_ = (call);                                                                                       \
        if (got_ != DG_SUCCESS)                                                                                        \
            test_fail(__FILE__, __LINE__, "%s: %s: %s", #call, dg_status_name(got_), dg_last_error());                 \
    } while (0)

#define EXPECT_REFUSED(call, wanted_status, words)                                                                     \
    do {                                                                                                               \
        dg_status got_ = (call);                                                                                       \
        if (got_ != (wanted_status))                                                                                   \
            test_fail(__FILE__, __LINE__, "%s: %s, wanted %s", #call, dg_status_name(got_), #wanted_status);           \
        EXPECT_TEXT(dg_last_error(), words);                                                                           \
    } while (0)

#endif
