/*
 * TEST_ALONE(name) { ... }: a test that runs in a process of its own, by running this program again for it alone; for
 * what happens once per process, such as loading the driver.
 */
#ifndef ALONE_H
#define ALONE_H

#include "tests/fake/fake.h"

#include <sys/wait.h>

#define TEST_ALONE(name)                                                                                               \
    static void test_alone_##name(void);                                                                               \
    TEST(name)                                                                                                         \
    {                                                                                                                  \
        if (alone_here(#name))                                                                                         \
            test_alone_##name();                                                                                       \
    }                                                                                                                  \
    static void test_alone_##name(void)

static inline void alone_exec(const char *name, int output)
{
    setenv("TEST_ALONE", name, 1);
    dup2(output, STDOUT_FILENO);
    execl("/proc/self/exe", "test_alone", name, (char *)NULL);
    _exit(127);
}

/* Whether this process is the one for the test; else runs that, and passes its output on if it failed. */
static inline bool alone_here(const char *name)
{
    static char output[8192];
    const char *chosen = getenv("TEST_ALONE");
    size_t used = 0;
    ssize_t got;
    int ends[2], status = 0;
    if (chosen && strcmp(chosen, name) == 0)
        return true;
    fake_path(); /* built here, once for all */
    if (pipe(ends) != 0)
        test_fail(__FILE__, __LINE__, "no pipe");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        alone_exec(name, ends[1]);
    close(ends[1]);
    while ((got = read(ends[0], output + used, sizeof output - 1 - used)) > 0)
        used += (size_t)got;
    output[used] = '\0';
    close(ends[0]);
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        test_fail(__FILE__, __LINE__, "in a process of its own (wait status %d):\n%s", status, output);
    return false;
}

#endif
