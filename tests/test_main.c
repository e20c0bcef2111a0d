#include "test.h"

#include <setjmp.h>
#include <stdarg.h>

static struct test *first, **last = &first;
static jmp_buf leave;
enum { FAILED = 1, SKIPPED = 2 };

void test_register(struct test *test)
{
    *last = test;
    last = &test->next;
}

static const char *running;

void test_fail(const char *file, int line, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    printf("FAIL %s: %s:%d: ", running, file, line);
    vprintf(format, values);
    printf("\n");
    va_end(values);
    longjmp(leave, FAILED);
}

void test_skip(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    printf("SKIP %s: ", running);
    vprintf(format, values);
    printf("\n");
    va_end(values);
    longjmp(leave, SKIPPED);
}

/* Arguments: substrings of test names to run; none: all. */
static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; ++i)
        if (strstr(name, argv[i]))
            return true;
    return argc < 2;
}

int main(int argc, char **argv)
{
    static int passed, failed, skipped; /* static: longjmp must not lose them */
    static struct test *test;
    const char *name = strrchr(argv[0], '/');
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (test = first; test; test = test->next) {
        if (!wanted(test->name, argc, argv))
            continue;
        running = test->name;
        switch (setjmp(leave)) {
        case 0:
            test->run();
            ++passed;
            break;
        case FAILED:
            ++failed;
            break;
        default:
            ++skipped;
        }
    }
    if (skipped)
        printf("%s: %d skipped\n", name ? name + 1 : argv[0], skipped);
    printf("%s: %d passed, %d failed\n", name ? name + 1 : argv[0], passed, failed);
    return failed != 0;
}
