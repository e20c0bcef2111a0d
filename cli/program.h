/* What all commands share: exit codes, sentences about trouble, option and number parsing, the progress line. */
#ifndef CLI_PROGRAM_H
#define CLI_PROGRAM_H

#include "deepgemm.h"

#include <getopt.h>

enum exit_code { EXIT_PASS = 0, EXIT_CHECK_FAILED = 1, EXIT_USAGE = 2 };

struct command {
    const char *name, *summary;
    const char *help; /* everything that `deepgemm NAME --help` prints */
    int (*run)(int argc, char **argv);
};

extern const struct command command_info, command_matmul, command_selftest, command_bench, command_precompile,
    command_tune;

/*
 * Trouble: a function that can fail returns false after storing a sentence (per thread), and whoever gives up prints
 * it. trouble() and ok() make this one expression: `return trouble("...");` and `if (!ok(dg_gemm(...))) ...`.
 */
#define trouble(...) (store_trouble(__VA_ARGS__), false)
void store_trouble(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool ok(dg_status status); /* false stores the library's own sentence */
const char *trouble_text(void);

/* "deepgemm COMMAND: sentence" on stderr; each returns the exit code to leave with. */
void program_begin(const struct command *command);
int fail_check(void);                                                          /* the stored trouble, code 1 */
int fail_usage(const char *format, ...) __attribute__((format(printf, 1, 2))); /* with a pointer to --help, code 2 */
void print_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * getopt_long with sentences: an unknown option says which there are. Returns the option's val, -1 at the end, or
 * OPTION_DONE when the command is to leave with *leave (after --help, or a usage error). A val that is a small letter
 * gives the option a short form; others start at OPTION_LONG. Every list begins with HELP_OPTION.
 */
enum { OPTION_DONE = -2, OPTION_LONG = 1000 };
#define HELP_OPTION                                                                                                    \
    {                                                                                                                  \
        "help", no_argument, NULL, 'h'                                                                                 \
    }
int next_option(int argc, char **argv, const struct option *options, int *leave);

/* A set of options, those from OPTION_LONG on: bit 0 is the first. The check is trouble with the name of one that came
   and has no effect. */
#define OPTION_BIT(option) (1u << ((option)-OPTION_LONG))
bool check_no_effect(const struct option *options, unsigned came, unsigned idle, const char *when);

/* A whole number in min..max and nothing after it. */
bool parse_number(const char *text, int64_t min, int64_t max, int64_t *value);
/* "4096,7168": exactly `count` numbers in min..max. */
bool parse_numbers(const char *text, int64_t min, int64_t max, int count, int64_t *values);

/* "cpu", "cuda", "cuda:1"; "auto" is the first CUDA device, or the CPU where there is none. */
bool parse_device(const char *text, int32_t *device);
/* "cuda:0 (NVIDIA H200)" or "cpu". */
const char *device_name(int32_t device);

/* A preset's name, or "arch=90,sms=132,l2=50,smem=227,memory=80": a description made by hand from H200's. */
bool parse_target(const char *text, dg_device_info *target);

/* One line on stderr that overwrites itself, when stderr is a terminal; progress_clear removes it. */
void progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void progress_clear(void);

double now_seconds(void);

/* malloc and friends that end in trouble instead of NULL being forgotten; zero bytes give a pointer too. */
void *get_memory(size_t bytes);

#endif
