#include "program.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Thread_local char sentence[2048];
static const struct command *running;
static bool line_shown;

void store_trouble(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(sentence, sizeof(sentence), format, values);
    va_end(values);
}

bool ok(dg_status status)
{
    if (status == DG_SUCCESS)
        return true;
    return trouble("%s", *dg_last_error() ? dg_last_error() : dg_status_text(status));
}

const char *trouble_text(void)
{
    return sentence;
}

void program_begin(const struct command *command)
{
    running = command;
}

static void print_name(void)
{
    progress_clear();
    fflush(stdout);
    fprintf(stderr, running ? "deepgemm %s: " : "deepgemm: ", running ? running->name : "");
}

int fail_check(void)
{
    print_name();
    fprintf(stderr, "%s\n", sentence);
    return EXIT_CHECK_FAILED;
}

int fail_usage(const char *format, ...)
{
    va_list values;
    print_name();
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fprintf(stderr, "\n`deepgemm %s%s--help` tells more.\n", running ? running->name : "", running ? " " : "");
    return EXIT_USAGE;
}

void print_note(const char *format, ...)
{
    va_list values;
    print_name();
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static int unknown_option(const char *given, const struct option *options)
{
    char list[512] = "";
    const struct option *fits = NULL, *second = NULL;
    for (const struct option *o = options; o->name; ++o)
        if (strncmp(given, "--", 2) == 0 && strncmp(given + 2, o->name, strcspn(given + 2, "=")) == 0)
            *(fits ? &second : &fits) = o;
    if (second)
        return fail_usage("%s could be --%s or --%s", given, fits->name, second->name);
    if (fits) /* it is known, so it was given a value that it does not take */
        return fail_usage("%s: --%s takes no value", given, fits->name);
    for (const struct option *o = options; o->name; ++o) {
        const size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, "%s--%s", used ? ", " : "", o->name);
    }
    return fail_usage("there is no option %s; there are %s", given, list);
}

/* Options whose val is a letter have a short form too: ":ho:" for help and an -o with a value. */
static void short_forms(const struct option *options, char *letters)
{
    *letters++ = ':'; /* tells a missing value apart */
    for (const struct option *o = options; o->name; ++o) {
        if (o->val >= 'a' && o->val <= 'z') {
            *letters++ = (char)o->val;
            if (o->has_arg == required_argument)
                *letters++ = ':';
        }
    }
    *letters = 0;
}

int next_option(int argc, char **argv, const struct option *options, int *leave)
{
    char letters[64];
    short_forms(options, letters);
    opterr = 0; /* the sentences are ours */
    const int value = getopt_long(argc, argv, letters, options, NULL);
    const char letter[3] = {'-', (char)optopt, 0};
    switch (value) {
    case 'h':
        fputs(running->help, stdout);
        *leave = EXIT_PASS;
        return OPTION_DONE;
    case ':':
        *leave = fail_usage("%s wants a value", argv[optind - 1]);
        return OPTION_DONE;
    case '?':
        *leave = unknown_option(optopt > ' ' && optopt < 256 ? letter : argv[optind - 1], options);
        return OPTION_DONE;
    default:
        return value;
    }
}

bool check_no_effect(const struct option *options, unsigned came, unsigned idle, const char *when)
{
    for (const struct option *o = options; o->name; ++o)
        if (o->val >= OPTION_LONG && (came & idle & OPTION_BIT(o->val)))
            return trouble("--%s has no effect %s", o->name, when);
    return true;
}

bool parse_number(const char *text, int64_t min, int64_t max, int64_t *value)
{
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (end == text || *end || text[0] == ' ')
        return trouble("\"%s\" is not a whole number", text);
    if (errno)
        return trouble("%s is not between %lld and %lld", text, (long long)min, (long long)max);
    if (number < min || number > max)
        return trouble("%lld is not between %lld and %lld", number, (long long)min, (long long)max);
    *value = number;
    return true;
}

bool parse_numbers(const char *text, int64_t min, int64_t max, int count, int64_t *values)
{
    char copy[1024];
    int found = 0;
    if (strlen(text) >= sizeof(copy))
        return trouble("\"%.20s...\" is too long for %d numbers", text, count);
    strcpy(copy, text);
    for (char *rest = copy, *part; (part = strsep(&rest, ",")) != NULL; ++found) {
        if (found == count)
            return trouble("\"%s\" has more than %d numbers", text, count);
        if (!parse_number(part, min, max, &values[found]))
            return false;
    }
    return found == count || trouble("\"%s\" has %d numbers, not %d", text, found, count);
}

bool parse_device(const char *text, int32_t *device)
{
    int64_t number = 0;
    int32_t count = 0;
    if (strcmp(text, "cpu") == 0) {
        *device = DG_CPU;
        return true;
    }
    if (strcmp(text, "auto") == 0) {
        *device = dg_device_count(&count) == DG_SUCCESS && count > 0 ? 0 : DG_CPU;
        return true;
    }
    if (strncmp(text, "cuda", 4) != 0 || (text[4] != 0 && text[4] != ':'))
        return trouble("\"%s\" is no device: cpu, cuda, cuda:N or auto", text);
    if (text[4] == ':' && !parse_number(text + 5, 0, 63, &number))
        return false;
    *device = (int32_t)number; /* whether it exists, the first use will tell */
    return true;
}

const char *device_name(int32_t device)
{
    static _Thread_local char name[96];
    dg_device_info info = DG_DEVICE_INFO_INIT;
    if (device == DG_CPU)
        return "cpu";
    snprintf(name, sizeof(name), "cuda:%d", (int)device);
    if (dg_device_query(device, &info) == DG_SUCCESS)
        snprintf(name, sizeof(name), "cuda:%d (%s)", (int)device, info.name);
    return name;
}

static bool set_target_key(dg_device_info *target, const char *key, int64_t value)
{
    if (strcmp(key, "arch") == 0)
        target->arch = (int32_t)value;
    else if (strcmp(key, "sms") == 0)
        target->num_sms = (int32_t)value;
    else if (strcmp(key, "l2") == 0)
        target->l2_bytes = value << 20;
    else if (strcmp(key, "smem") == 0)
        target->smem_bytes_per_block = (int32_t)value << 10;
    else if (strcmp(key, "memory") == 0)
        target->memory_bytes = value << 30;
    else
        return trouble("a target has no key \"%s\": arch, sms, l2 (MiB), smem (KiB), memory (GiB)", key);
    return true;
}

/* Whether "key=", the first `length` letters of part, begins one of the parts that follow. */
static bool given_again(const char *rest, const char *part, size_t length)
{
    for (const char *at = rest; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, part, length) == 0)
            return true;
    return false;
}

bool parse_target(const char *text, dg_device_info *target)
{
    char copy[128];
    *target = (dg_device_info)DG_DEVICE_INFO_INIT;
    if (strchr(text, '=') == NULL)
        return dg_device_preset(text, target) == DG_SUCCESS ||
               trouble("\"%s\" is no target: h100, h200, h20, gh200, or a description such as arch=90,sms=132", text);
    if (strlen(text) >= sizeof(copy))
        return trouble("the target \"%.20s...\" is too long", text);
    if (!ok(dg_device_preset("h200", target)))
        return false;
    snprintf(target->name, sizeof(target->name), "%.63s", text);
    strcpy(copy, text);
    for (char *rest = copy, *part; (part = strsep(&rest, ",")) != NULL;) {
        char *value = strchr(part, '=');
        int64_t number;
        if (value && given_again(rest, part, (size_t)(value + 1 - part)))
            return trouble("the target's %.*s comes twice", (int)(value - part), part);
        if (value == NULL)
            return trouble("\"%s\" in the target has no value; write key=number", part);
        *value++ = 0;
        if (!parse_number(value, 1, 100000, &number) || !set_target_key(target, part, number))
            return false;
    }
    return true;
}

/* ---- Progress, time, memory -------------------------------------------------------------------------------------- */

void progress_clear(void)
{
    if (line_shown)
        fputs("\r\033[K", stderr);
    line_shown = false;
}

void progress(const char *format, ...)
{
    va_list values;
    char line[512];
    if (!isatty(STDERR_FILENO))
        return;
    va_start(values, format);
    vsnprintf(line, sizeof(line), format, values);
    va_end(values);
    fprintf(stderr, "\r\033[K%.100s", line); /* cut so that it stays one line */
    fflush(stderr);
    line_shown = true;
}

double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void *get_memory(size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 256, bytes ? bytes : 1) != 0) {
        store_trouble("%zu bytes of memory are not to be had", bytes);
        return NULL;
    }
    return memory;
}
