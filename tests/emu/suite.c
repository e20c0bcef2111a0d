#include "tests/emu/suite.h"

#include "tests/emu/case.h"
#include "tests/emu/mutate.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#define NAME "emu_asan"
#else
#define NAME "emu"
#endif

enum group { CASES, SMALL_CASES, PARTS, MUTANTS, GROUPS };
enum { USUAL_SEEDS = 3, SMALL_SEEDS = 100, MUTANT_SEEDS = 40, PART_SEEDS = 20, MAX_WORKERS = 64, SECONDS = 300 };

/* A run of this program: what it is given, and how it must end. */
struct job {
    enum group group;
    const char *kernel, *line, *mutant, *spoil;
    const char *report; /* words of it; NULL: success is wanted; "": any report */
    int seeds;
    pid_t process;
    int output; /* a file */
};

static struct job jobs[1024];
static int job_count;

static const char *const group_names[GROUPS] = {"cases", "small", "parts", "mutants"};

unsigned suite_group(const char *word)
{
    for (int i = 0; i < GROUPS; ++i)
        if (strcmp(word, group_names[i]) == 0)
            return 1u << i;
    return 0;
}

/* ---- What there is to do --------------------------------------------------------------------------------------- */

static const struct job all_cases[] = {
#define CASE(kernel_name, case_line) {.group = CASES, .kernel = kernel_name, .line = case_line},
#define SMALL(kernel_name, case_line) {.group = SMALL_CASES, .kernel = kernel_name, .line = case_line},
#include "tests/emu/cases.def"
};

static const struct job all_parts[] = {
#define PART(text, words) {.group = PARTS, .line = "part " text, .report = words},
#include "tests/emu/parts.def"
};

static const struct job all_spoilt[] = {
#define SPOILT(what, case_line, words)                                                                                 \
    {                                                                                                                  \
        .group = PARTS, .line = case_line, .spoil = what, .report = words                                              \
    }
    SPOILT("swizzle", "gemm 64x32 m=64 n=32 k=128 sms=1", ""),
    SPOILT("box", "gemm 64x32 m=64 n=32 k=128 sms=1", ""),
    SPOILT("stride", "gemm 64x32 m=64 n=32 k=128 sms=1", ""),
    SPOILT("size", "gemm 64x32 m=60 n=32 k=128 sms=1", "to no tensor"),
    SPOILT("threads", "gemm 64x32 m=64 n=32 k=128 sms=1", "threads are launched"),
    SPOILT("smem", "gemm 64x32 m=64 n=32 k=128 sms=1", ""),
};

static void add(const struct job *from, size_t count, unsigned groups, int seeds)
{
    for (size_t i = 0; i < count; ++i)
        if (groups == 0 || groups >> from[i].group & 1) {
            jobs[job_count] = from[i];
            jobs[job_count++].seeds = seeds;
        }
}

static void add_small(int seeds)
{
    for (int i = 0; i < job_count; ++i)
        if (jobs[i].group == SMALL_CASES)
            jobs[i].seeds = seeds;
}

/* The line of a mutant, once, without one: what is found there must be the mutant's. */
static void add_control(const char *line, unsigned groups)
{
    const struct job job = {.group = PARTS, .line = line};
    for (int i = 0; i < job_count; ++i)
        if (jobs[i].mutant == NULL && jobs[i].spoil == NULL && strcmp(jobs[i].line, line) == 0)
            return;
    add(&job, 1, groups, MUTANT_SEEDS);
}

static void add_mutants(unsigned groups)
{
    for (size_t i = 0; i < mutant_count; ++i) {
        add_control(mutants[i].line, groups);
        const struct job job = {.group = MUTANTS, .line = mutants[i].line, .mutant = mutants[i].name, .report = ""};
        add(&job, 1, groups, MUTANT_SEEDS);
    }
}

static void list_jobs(unsigned groups, int seeds)
{
    const char *variable = getenv("EMU_SEEDS");
    const int usual = seeds > 0 ? seeds : variable && atoi(variable) > 0 ? atoi(variable) : USUAL_SEEDS;
    add(all_cases, sizeof all_cases / sizeof all_cases[0], groups, usual);
    add_small(seeds > 0 ? seeds : usual > SMALL_SEEDS ? usual : SMALL_SEEDS);
    add(all_parts, sizeof all_parts / sizeof all_parts[0], groups, seeds > 0 ? seeds : PART_SEEDS);
    add(all_spoilt, sizeof all_spoilt / sizeof all_spoilt[0], groups, seeds > 0 ? seeds : PART_SEEDS);
    add_mutants(groups);
}

/* ---- Running --------------------------------------------------------------------------------------------------- */

static void become(const struct job *job)
{
    char seeds[16];
    const char *argv[12] = {"emu", job->line, "--seeds", seeds};
    int count = 4;
    snprintf(seeds, sizeof seeds, "%d", job->seeds);
    if (job->mutant) {
        argv[count++] = "--mutant";
        argv[count++] = job->mutant;
    }
    if (job->spoil) {
        argv[count++] = "--spoil";
        argv[count++] = job->spoil;
    }
    if (job->kernel)
        setenv("EMU_KERNEL", job->kernel, 1);
    dup2(job->output, STDOUT_FILENO);
    dup2(job->output, STDERR_FILENO);
    alarm((unsigned)(SECONDS + job->seeds));
    execv("/proc/self/exe", (char *const *)(void *)argv);
    _exit(CASE_BROKEN);
}

static void begin(struct job *job)
{
    job->output = memfd_create("output", MFD_CLOEXEC);
    fflush(stdout);
    job->process = fork();
    if (job->process == 0)
        become(job);
}

static char *output_of(const struct job *job)
{
    struct stat info;
    fstat(job->output, &info);
    char *text = calloc(1, (size_t)info.st_size + 1);
    if (pread(job->output, text, (size_t)info.st_size, 0) < 0)
        text[0] = '\0';
    close(job->output);
    return text;
}

static bool ended_as_wanted(const struct job *job, int status, const char *output)
{
    if (job->report == NULL)
        return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return WIFEXITED(status) && WEXITSTATUS(status) == EMU_WRONG && strstr(output, job->report) != NULL;
}

static void describe(const struct job *job, const char *program, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s '%s' --seeds %d%s%s%s%s", program, job->line, job->seeds, job->mutant ? " --mutant " : "",
             job->mutant ? job->mutant : "", job->spoil ? " --spoil " : "", job->spoil ? job->spoil : "");
}

static bool judge(const struct job *job, const char *program, int status)
{
    char command[512], *output = output_of(job);
    const bool good = ended_as_wanted(job, status, output);
    const int first_line = (int)strcspn(output, "\n");
    describe(job, program, command, sizeof command);
    if (good && job->report)
        printf("found: %s: %.*s\n", job->mutant ? job->mutant : command, first_line, output);
    if (!good) {
        printf("FAIL %s\n", command);
        if (WIFSIGNALED(status))
            printf("    ended by signal %d%s\n", WTERMSIG(status),
                   WTERMSIG(status) == SIGALRM ? ", after too long" : "");
        if (job->report)
            printf("    should have found%s %s; status %d\n", job->report[0] ? "" : " something wrong", job->report,
                   WIFEXITED(status) ? WEXITSTATUS(status) : -1);
        printf("%s\n", output);
    }
    free(output);
    return good;
}

static struct job *job_of(pid_t process)
{
    int i = 0;
    while (jobs[i].process != process)
        ++i;
    return &jobs[i];
}

static void run_jobs(const char *program, int good[GROUPS])
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    const int workers = processors < 1 ? 1 : processors > MAX_WORKERS ? MAX_WORKERS : (int)processors;
    int begun = 0, running = 0, status;
    while (begun < job_count || running > 0) {
        for (; begun < job_count && running < workers; ++running)
            begin(&jobs[begun++]);
        const pid_t process = waitpid(-1, &status, 0);
        if (process < 0)
            break;
        --running;
        const struct job *job = job_of(process);
        good[job->group] += judge(job, program, status);
    }
}

/* ---- Counting -------------------------------------------------------------------------------------------------- */

static int count_kernels(void)
{
    int count = 0;
    for (int i = 0; i < job_count; ++i) {
        int j = 0;
        while (jobs[i].kernel && j < i && (jobs[j].kernel == NULL || strcmp(jobs[j].kernel, jobs[i].kernel) != 0))
            ++j;
        count += jobs[i].kernel && j == i;
    }
    return count;
}

static int count_group(enum group group, int *seeds)
{
    int count = 0;
    for (int i = 0; i < job_count; ++i)
        if (jobs[i].group == group) {
            ++count;
            *seeds += jobs[i].seeds;
        }
    return count;
}

int suite_run(const char *program, unsigned groups, int seeds)
{
    const time_t start = time(NULL);
    int good[GROUPS] = {0}, runs = 0, of_mutants = 0;
    list_jobs(groups, seeds);
    run_jobs(program, good);
    const int cases = count_group(CASES, &runs) + count_group(SMALL_CASES, &runs);
    const int parts = count_group(PARTS, &runs), made = count_group(MUTANTS, &of_mutants);
    const int passed = good[CASES] + good[SMALL_CASES] + good[PARTS] + good[MUTANTS];
    printf("emulation: %d kernels in %d cases", count_kernels(), cases);
    if (parts > 0)
        printf(" and %d tests of its own parts", parts);
    printf(", %d seeds in all, %lld s\n", runs, (long long)(time(NULL) - start));
    if (made > 0)
        printf("mutants: %d made, %d caught\n", made, good[MUTANTS]);
    printf(NAME ": %d passed, %d failed\n", passed, job_count - passed);
    return passed != job_count;
}

/* ---- Digests --------------------------------------------------------------------------------------------------- */

/* Whether the GPU must give the same bits: what gemm_simple adds up it adds in the reference's order, but only layouts
   that the tensor cores' kernel refuses bring it there. */
static bool is_exact(const struct job *job)
{
    if (strcmp(job->kernel, "gemm_simple") == 0)
        return case_has(job->line, "arch=90");
    return strncmp(job->kernel, "sm90_", 5) != 0 || case_has(job->line, "ints");
}

int suite_digest(bool cuda)
{
    int status, failed = 0;
    for (size_t i = 0; i < sizeof all_cases / sizeof all_cases[0]; ++i) {
        if (!is_exact(&all_cases[i]))
            continue;
        fflush(stdout);
        const pid_t process = fork();
        if (process == 0) {
            execl("/proc/self/exe", "emu", all_cases[i].line, "--digest", cuda ? "--cuda" : NULL, (char *)NULL);
            _exit(CASE_BROKEN);
        }
        waitpid(process, &status, 0);
        failed += status != 0;
    }
    return failed != 0;
}
