#include "jit/dump.h"

#include "core/log.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

bool jit_dump_wants_ptx(void)
{
    return env_flag(ENV_DUMP_PTX) || env_flag(ENV_DUMP_ASM);
}

/* Run `program [option] cubin`; `output` receives what it prints, and its complaints go nowhere. */
static bool run(const char *program, const char *option, const char *cubin, int output)
{
    const char *arguments[4] = {program, option ? option : cubin, option ? cubin : NULL, NULL};
    posix_spawn_file_actions_t actions;
    pid_t child = -1;
    int state = -1, error;
    if (lseek(output, 0, SEEK_SET) != 0 || ftruncate(output, 0) != 0 || posix_spawn_file_actions_init(&actions) != 0)
        return false;
    error = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    if (error == 0)
        error = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (error == 0) /* its prototype lacks a const that POSIX promises */
        error = posix_spawnp(&child, program, &actions, NULL, (char *const *)(uintptr_t)arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0)
        return false;
    while (waitpid(child, &state, 0) < 0)
        if (errno != EINTR)
            return false;
    return WIFEXITED(state) && WEXITSTATUS(state) == 0;
}

/* By either disassembler, from PATH or from the toolkit. */
static bool disassemble(const char *cubin, int output)
{
    static const struct {
        const char *program, *option;
    } tools[] = {{"cuobjdump", "-sass"}, {"nvdisasm", NULL}};
    const char *home = getenv("CUDA_HOME");
    char path[CACHE_PATH_BYTES];
    for (size_t i = 0; i < sizeof tools / sizeof tools[0]; ++i) {
        snprintf(path, sizeof path, "%s/bin/%s", home ? home : "", tools[i].program);
        if (run(tools[i].program, tools[i].option, cubin, output) ||
            (home && run(path, tools[i].option, cubin, output)))
            return true;
    }
    return false;
}

/* The disassemblers read a file, and a bare cubin, not a cache entry. */
static bool write_sass(struct cache_place *place, const struct jit_compilation *c, const char *cubin, int output)
{
    struct stat info;
    char *text = NULL;
    bool ok = false;
    int file = open(cubin, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0)
        return false;
    ok = write(file, c->cubin, c->report.cubin_bytes) == (ssize_t)c->report.cubin_bytes;
    close(file);
    ok = ok && disassemble(cubin, output) && fstat(output, &info) == 0 && info.st_size > 0;
    text = ok ? malloc((size_t)info.st_size) : NULL;
    ok = text && pread(output, text, (size_t)info.st_size, 0) == info.st_size &&
         cache_write_beside(place, ".sass", text, (size_t)info.st_size);
    free(text);
    unlink(cubin);
    return ok;
}

static void dump_sass(struct cache_place *place, const struct jit_compilation *compilation)
{
    const char *given = getenv("TMPDIR");
    char folder[CACHE_PATH_BYTES], cubin[CACHE_PATH_BYTES + 16], sass[CACHE_PATH_BYTES + 16];
    bool ok;
    snprintf(folder, sizeof folder, "%s/deepgemm-XXXXXX", given && *given ? given : "/tmp");
    if ((ok = mkdtemp(folder))) {
        snprintf(cubin, sizeof cubin, "%s/kernel.cubin", folder);
        snprintf(sass, sizeof sass, "%s/kernel.sass", folder);
        const int output = open(sass, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        ok = output >= 0 && write_sass(place, compilation, cubin, output);
        if (output >= 0) {
            close(output);
            unlink(sass);
        }
        rmdir(folder);
    }
    if (!ok)
        log_line(ENV_JIT_DEBUG, "jit: no SASS: is cuobjdump or nvdisasm on PATH or in CUDA_HOME, and a cache on disk?");
}

void jit_dump(struct cache_place *place, const struct jit_compilation *compilation)
{
    if (jit_dump_wants_ptx() && compilation->ptx)
        cache_write_beside(place, ".ptx", compilation->ptx, strlen(compilation->ptx));
    if (env_flag(ENV_DUMP_SASS) || env_flag(ENV_DUMP_ASM))
        dump_sass(place, compilation);
}
