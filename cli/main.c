/* deepgemm: one program to look, multiply, test and measure. Uses the public API only, but for `tune`. */
#include "cases.h"
#include "program.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct command *const commands[] = {&command_info,  &command_matmul,     &command_selftest,
                                                 &command_bench, &command_precompile, &command_tune};
enum { COMMAND_COUNT = sizeof(commands) / sizeof(commands[0]) };

static void print_help(FILE *to)
{
    fprintf(to,
            "deepgemm %s: FP8 matrix multiplication with fine-grained scaling\n\n"
            "Usage: deepgemm COMMAND [options]\n\nCommands:\n",
            dg_version());
    for (int i = 0; i < COMMAND_COUNT; ++i)
        fprintf(to, "  %-12s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(to,
            "  %-12s %s\n  %-12s %s\n\n"
            "`deepgemm COMMAND --help` tells the options of one.\n"
            "Exit codes: 0 all is well, 1 a check failed or something could not be done, 2 wrong usage.\n",
            "help", "this text, or that of a command", "help cases", "the text form of problems, used by all commands");
}

static const struct command *find_command(const char *name)
{
    for (int i = 0; i < COMMAND_COUNT; ++i)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static int unknown_command(const char *name)
{
    char list[256] = "";
    for (int i = 0; i < COMMAND_COUNT; ++i) {
        const size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, "%s, ", commands[i]->name);
    }
    return fail_usage("there is no command \"%s\"; there are %sand help", name, list);
}

static int help(const char *topic)
{
    if (topic == NULL) {
        print_help(stdout);
        return EXIT_PASS;
    }
    if (strcmp(topic, "cases") == 0) {
        case_help();
        return EXIT_PASS;
    }
    const struct command *command = find_command(topic);
    if (command == NULL)
        return unknown_command(topic);
    fputs(command->help, stdout);
    return EXIT_PASS;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return argc > 3 ? fail_usage("help takes one topic; \"%s\" is too much", argv[3]) : help(argv[2]);
    if (strcmp(name, "--version") == 0) {
        if (argc > 2)
            return fail_usage("--version takes no argument \"%s\"", argv[2]);
        puts(dg_version());
        return EXIT_PASS;
    }
    const struct command *command = find_command(name);
    if (command == NULL)
        return unknown_command(name);
    program_begin(command);
    return command->run(argc - 1, argv + 1);
}

/* A file opened while descriptor 0, 1 or 2 is closed would get its number, and what is printed with it. */
static void fill_standard_descriptors(void)
{
    int got;
    do
        got = open("/dev/null", O_RDONLY);
    while (got >= 0 && got <= STDERR_FILENO);
    if (got >= 0)
        close(got);
}

int main(int argc, char **argv)
{
    fill_standard_descriptors(); /* read-only: printing there still fails, and is told */
    const int code = run(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    store_trouble("standard output could not be written");
    return fail_check();
}
