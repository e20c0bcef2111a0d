/*
 * emu CASE [--seed N] [--seeds N] [--mutant NAME] [--spoil WHAT] [--trace] [--calm]
 *                                                    run one case
 * emu --suite [--seeds N] [cases] [small] [parts] [mutants]                  run all that there is, or some
 * emu [CASE] --digest [--cuda]                       hash the outputs of one case, or of all whose sums are exact; on
 *                                                    the emulated GPU or on a real one
 *
 * From the root of the tree. docs/emulation.md tells more.
 */
#include "tests/emu/case.h"
#include "tests/emu/mutate.h"
#include "tests/emu/suite.h"

#include "jit/sources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct options {
    const char *line, *mutant, *spoil;
    bool suite, digest, cuda;
    uint64_t seed;
    int seeds;
    unsigned groups; /* of the suite */
};

static void usage(void)
{
    printf("emu CASE [--seed N] [--seeds N] [--mutant NAME] [--spoil WHAT] [--trace] [--calm]\n"
           "emu --suite [--seeds N] [cases] [small] [parts] [mutants]\n"
           "emu [CASE] --digest [--cuda]\n");
    exit(CASE_BROKEN);
}

static bool read_flag(struct options *o, const char *word)
{
    if (strcmp(word, "--suite") == 0)
        return o->suite = true;
    if (strcmp(word, "--digest") == 0)
        return o->digest = true;
    if (strcmp(word, "--cuda") == 0)
        return o->cuda = true;
    if (strcmp(word, "--trace") == 0)
        return emu_settings.trace = true;
    if (strcmp(word, "--calm") == 0)
        return emu_settings.calm = true;
    return false;
}

static bool read_value(struct options *o, const char *word, const char *value)
{
    if (value == NULL)
        return false;
    if (strcmp(word, "--seed") == 0)
        o->seed = strtoull(value, NULL, 0);
    else if (strcmp(word, "--seeds") == 0)
        o->seeds = atoi(value);
    else if (strcmp(word, "--mutant") == 0)
        o->mutant = value;
    else if (strcmp(word, "--spoil") == 0)
        o->spoil = value;
    else
        return false;
    return true;
}

static struct options read_options(int argc, char **argv)
{
    struct options o = {.seed = 1};
    for (int i = 1; i < argc; ++i) {
        if (read_flag(&o, argv[i]))
            continue;
        if (read_value(&o, argv[i], argv[i + 1]))
            ++i;
        else if (o.suite && suite_group(argv[i]))
            o.groups |= suite_group(argv[i]);
        else if (o.line == NULL && argv[i][0] != '-')
            o.line = argv[i];
        else
            usage();
    }
    if (!o.suite && !o.digest && o.line == NULL)
        usage();
    return o;
}

/* ---- Surroundings -------------------------------------------------------------------------------------------- */

static const char *beside_program(const char *name)
{
    static char path[8][4096];
    static int next;
    char *out = path[next++ % 8];
    const ssize_t length = readlink("/proc/self/exe", out, 3000);
    out[length < 0 ? 0 : length] = '\0';
    snprintf(strrchr(out, '/') + 1, 1000, "%s", name);
    return out;
}

/* Kernels that other compilers or options made are not to be found in the cache. */
static const char *cache_directory(void)
{
    char name[64];
    uint64_t hash = 0;
    const char *const settings[] = {getenv("EMU_CXX"), getenv("EMU_CXXFLAGS")};
    for (int i = 0; i < 2; ++i)
        for (const char *c = settings[i]; c && *c; ++c)
            hash = hash * 31 + (unsigned char)*c;
    snprintf(name, sizeof name, "cache-%llx", (unsigned long long)hash);
    return beside_program(name);
}

static void surround(void)
{
    setenv("FAKE_CUDA_LIBRARY", beside_program("libcuda.so"), 1);
    setenv("DG_NVRTC_PATH", beside_program("libnvrtc.so"), 1);
    setenv("DG_JIT_CACHE_DIR", cache_directory(), 1);
    setenv("EMU_KERNELS", beside_program("kernels"), 0);
    setenv("OMP_NUM_THREADS", "1", 0);
}

/* Kernels find the emulation's functions in the place of the real ones. */
static void replace_headers(void)
{
    sources_replace("common/ptx.h", case_read("tests/emu/common/ptx.h"));
    sources_replace("common/tma.h", case_read("tests/emu/common/tma.h"));
    sources_replace("common/more.h", case_read("tests/emu/common/more.h"));
}

/* How to run this again, but for the seed. */
static const char *replay_command(const struct options *o, const char *program)
{
    static char command[1024];
    snprintf(command, sizeof command, "%s '%s'%s%s%s%s", program, o->line, o->mutant ? " --mutant " : "",
             o->mutant ? o->mutant : "", o->spoil ? " --spoil " : "", o->spoil ? o->spoil : "");
    return command;
}

int main(int argc, char **argv)
{
    const struct options o = read_options(argc, argv);
    if (!o.cuda) {
        surround();
        replace_headers();
    }
    if (o.suite)
        return suite_run(argv[0], o.groups, o.seeds);
    if (o.digest && o.line == NULL)
        return suite_digest(o.cuda);
    emu_settings.replay = replay_command(&o, argv[0]);
    if (o.mutant)
        mutate(o.mutant);
    if (o.spoil)
        spoil(o.spoil);
    if (o.digest)
        case_digest(o.line, o.cuda);
    else {
        case_run(o.line, o.seed, o.seeds > 0 ? o.seeds : 1);
        printf("%d seeds: nothing wrong\n", o.seeds > 0 ? o.seeds : 1);
    }
    return 0;
}
