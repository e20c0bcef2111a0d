/* The JIT's disk cache: hits in other processes, damage, disks that refuse, locks between processes. Needs NVRTC. */
#include "tests/unit/jit/scene.h"

#include "jit/cache.h"
#include "jit/clock.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>

static const char *entry_path(const char *suffix)
{
    const struct jit_request request = scene_request();
    return scene_entry(&request, suffix);
}

static void remove_compiler(void)
{
    setenv("DG_NVRTC_PATH", "/nowhere", 1);
}

static int count_files(const char *folder)
{
    const struct dirent *entry;
    DIR *list = opendir(folder);
    int count = 0;
    EXPECT_THAT(list != NULL, "%s: %s", folder, strerror(errno));
    while ((entry = readdir(list)))
        count += entry->d_name[0] != '.';
    closedir(list);
    return count;
}

/* ---- Hits -------------------------------------------------------------------------------------------------------- */

TEST(another_process_reads_the_entry_and_needs_no_compiler)
{
    struct outcome first, second;
    scene_begin();
    first = scene_get(scene_request());
    EXPECT_ORIGIN(first, JIT_COMPILED);
    remove_compiler();
    second = scene_get(scene_request());
    EXPECT_ORIGIN(second, JIT_FROM_DISK);
    EXPECT_INT(second.bytes, first.bytes);
    EXPECT(second.image.high == first.image.high && second.image.low == first.image.low);
    EXPECT_ORIGIN(scene_run((struct get_job){.request = scene_request(), .may_compile = false}), JIT_FROM_DISK);
    EXPECT_INT(count_files(scene_path("cache/test_kernel")), 1); /* no lock, nothing private is left */
}

TEST(another_key_is_a_miss_that_names_what_lacks)
{
    struct jit_request request = scene_request();
    struct outcome outcome;
    scene_begin();
    EXPECT_ORIGIN(scene_get(request), JIT_COMPILED);
    remove_compiler();
    request.config = "#define VALUE 2\n";
    outcome = scene_get(request);
    EXPECT_INT(outcome.status, DG_ERROR_NO_COMPILER);
    outcome = scene_run((struct get_job){.request = request, .may_compile = false});
    EXPECT_INT(outcome.status, DG_ERROR_COMPILE_FORBIDDEN);
    EXPECT_TEXT(outcome.message, "test_kernel");
}

TEST(a_directory_may_be_moved)
{
    scene_begin();
    EXPECT_ORIGIN(scene_get(scene_request()), JIT_COMPILED);
    EXPECT(rename(scene_cache, scene_path("moved")) == 0);
    setenv("DG_JIT_CACHE_DIR", scene_path("moved"), 1);
    remove_compiler();
    EXPECT_ORIGIN(scene_get(scene_request()), JIT_FROM_DISK);
    EXPECT(symlink(scene_path("moved"), scene_path("link")) == 0); /* the directory itself may be a link */
    setenv("DG_JIT_CACHE_DIR", scene_path("link"), 1);
    EXPECT_ORIGIN(scene_get(scene_request()), JIT_FROM_DISK);
}

static void leave_home(void)
{
    unsetenv("HOME");
    unsetenv("DG_JIT_CACHE_DIR");
}

struct late_job {
    struct outcome before, after;
};

static void late_body(void *argument)
{
    struct late_job *job = argument;
    struct jit_request request = scene_request();
    struct jit_cubin cubin;
    enum jit_origin origin;
    dg_status status;
    leave_home();
    status = jit_get(&request, true, &cubin, &origin);
    scene_record(&job->before, status, origin, &cubin);
    setenv("DG_JIT_CACHE_DIR", scene_cache, 1);
    request.config = "#define VALUE 2\n";
    status = jit_get(&request, true, &cubin, &origin);
    scene_record(&job->after, status, origin, &cubin);
}

TEST(without_a_home_kernels_stay_in_memory_until_a_directory_is_named)
{
    struct late_job *job = scene_shared(sizeof *job);
    struct jit_request request = scene_request();
    scene_begin();
    scene_wait(scene_fork(late_body, job));
    EXPECT_ORIGIN(job->before, JIT_COMPILED);
    EXPECT_ORIGIN(job->after, JIT_COMPILED);
    EXPECT(!scene_exists(entry_path(".cubin")));
    request.config = "#define VALUE 2\n";
    EXPECT(scene_exists(scene_entry(&request, ".cubin")));
}

static void set_home(void)
{
    unsetenv("DG_JIT_CACHE_DIR");
    setenv("HOME", scene_root, 1);
    umask(027);
}

TEST(the_home_directory_gets_a_cache_that_honours_the_umask)
{
    struct get_job job = {.request = scene_request(), .may_compile = true, .prepare = set_home};
    char path[SCENE_PATH * 2];
    struct stat info;
    scene_begin();
    EXPECT_ORIGIN(scene_run(job), JIT_COMPILED);
    snprintf(path, sizeof path, "%s/.cache/deepgemm/test_kernel", scene_root);
    EXPECT(stat(path, &info) == 0);
    EXPECT_INT(info.st_mode & 0777, 0750);
    snprintf(path + strlen(path), sizeof path - strlen(path), "%s", strrchr(entry_path(".cubin"), '/'));
    EXPECT_THAT(stat(path, &info) == 0, "%s is missing", path);
    EXPECT_INT(info.st_mode & 0777, 0640);
    EXPECT_ORIGIN(scene_run(job), JIT_FROM_DISK);
}

/* ---- Damage ------------------------------------------------------------------------------------------------------ */

struct direct {
    struct jit_unit unit;
    struct cache_place place;
};

/* The cache without the JIT before it, in this process. */
static void open_direct(struct direct *direct)
{
    struct jit_request request = scene_request();
    EXPECT_OK(jit_unit_make(&request, &direct->unit));
    cache_open(&direct->place, &direct->unit);
}

static void close_direct(struct direct *direct)
{
    cache_close(&direct->place);
    jit_unit_free(&direct->unit);
}

static bool reads(void)
{
    struct cache_entry entry;
    struct direct direct;
    bool found;
    open_direct(&direct);
    found = cache_read(&direct.place, &entry);
    if (found)
        free(entry.image);
    close_direct(&direct);
    return found;
}

TEST(no_byte_of_an_entry_can_change_unnoticed)
{
    static const char image[] = "stands for a cubin";
    struct direct direct;
    size_t bytes;
    unsigned char *file;
    scene_begin();
    open_direct(&direct);
    cache_write(&direct.place, &(struct cache_entry){(void *)(uintptr_t)image, sizeof image, 13000, 0});
    close_direct(&direct);
    EXPECT(reads());
    file = scene_read(entry_path(".cubin"), &bytes);
    EXPECT_INT(bytes, 64 + sizeof image);
    for (size_t i = 0; i < bytes; ++i) {
        file[i] ^= 0x10;
        scene_write(entry_path(".cubin"), file, bytes);
        EXPECT_THAT(!reads(), "byte %zu changed and nobody noticed", i);
        file[i] ^= 0x10;
    }
    for (size_t length = 0; length < bytes; ++length) {
        scene_write(entry_path(".cubin"), file, length);
        EXPECT_THAT(!reads(), "an entry cut to %zu bytes was read", length);
    }
    scene_write(entry_path(".cubin"), file, bytes + 1);
    EXPECT_THAT(!reads(), "an entry with a byte too many was read");
    scene_write(entry_path(".cubin"), file, bytes);
    EXPECT(reads());
    free(file);
}

#define EXPECT_HEALED(what)                                                                                            \
    do {                                                                                                               \
        struct outcome healed_ = scene_get(scene_request());                                                           \
        EXPECT_THAT(healed_.status == DG_SUCCESS && healed_.origin == JIT_COMPILED, "%s: %s", what, healed_.message);  \
        healed_ = scene_get(scene_request());                                                                          \
        EXPECT_THAT(healed_.status == DG_SUCCESS && healed_.origin == JIT_FROM_DISK, "%s did not heal", what);         \
    } while (0)

TEST(damaged_entries_heal)
{
    static const struct {
        const char *what;
        size_t offset;
    } regions[] = {{"magic", 3},
                   {"format", 8},
                   {"compiler", 13},
                   {"key", 30},
                   {"length", 41},
                   {"checksum", 50},
                   {"first byte of the cubin", 64},
                   {"middle of the cubin", 1000}};
    size_t bytes;
    unsigned char *file;
    scene_begin();
    EXPECT_ORIGIN(scene_get(scene_request()), JIT_COMPILED);
    file = scene_read(entry_path(".cubin"), &bytes);
    for (size_t i = 0; i < sizeof regions / sizeof regions[0]; ++i) {
        file[regions[i].offset] ^= 0xff;
        scene_write(entry_path(".cubin"), file, bytes);
        file[regions[i].offset] ^= 0xff;
        EXPECT_HEALED(regions[i].what);
    }
    scene_write(entry_path(".cubin"), file, 0);
    EXPECT_HEALED("an empty file");
    scene_write(entry_path(".cubin"), file, bytes / 2);
    EXPECT_HEALED("half a file");
    scene_write(entry_path(".cubin"), file + 64, bytes - 64);
    EXPECT_HEALED("a bare cubin");
    free(file);
}

TEST(what_is_no_file_is_replaced)
{
    char victim[SCENE_PATH * 2];
    size_t bytes;
    unsigned char *text;
    scene_begin();
    EXPECT_ORIGIN(scene_get(scene_request()), JIT_COMPILED);
    EXPECT(unlink(entry_path(".cubin")) == 0 && mkdir(entry_path(".cubin"), 0755) == 0);
    EXPECT_HEALED("a directory");
    EXPECT(unlink(entry_path(".cubin")) == 0 && mkfifo(entry_path(".cubin"), 0644) == 0);
    EXPECT_HEALED("a FIFO");
    snprintf(victim, sizeof victim, "%s", scene_path("victim"));
    scene_write(victim, "precious", 8);
    EXPECT(unlink(entry_path(".cubin")) == 0 && symlink(victim, entry_path(".cubin")) == 0);
    EXPECT(symlink(victim, entry_path(".lock")) == 0);
    EXPECT_HEALED("a symbolic link");
    text = scene_read(victim, &bytes);
    EXPECT_THAT(bytes == 8 && memcmp(text, "precious", 8) == 0, "a link was followed when writing");
    free(text);
}

TEST(an_entry_that_cannot_be_replaced_does_no_harm)
{
    char inner[SCENE_PATH * 3];
    scene_begin();
    EXPECT_ORIGIN(scene_get(scene_request()), JIT_COMPILED);
    snprintf(inner, sizeof inner, "%s/inner", entry_path(".cubin"));
    EXPECT(unlink(entry_path(".cubin")) == 0 && mkdir(entry_path(".cubin"), 0755) == 0 && mkdir(inner, 0755) == 0);
    EXPECT_ORIGIN(scene_get(scene_request()), JIT_COMPILED);
    EXPECT_ORIGIN(scene_get(scene_request()), JIT_COMPILED);
    EXPECT_INT(count_files(scene_path("cache/test_kernel")), 1);
}

TEST(unreadable_entries_heal_and_read_only_directories_serve)
{
    struct get_job job = {.request = scene_request(), .may_compile = true, .prepare = scene_become_nobody};
    struct jit_request other = scene_request();
    scene_begin();
    EXPECT(mkdir(scene_cache, 0777) == 0 && chmod(scene_cache, 0777) == 0);
    EXPECT_ORIGIN(scene_run(job), JIT_COMPILED);
    EXPECT(chmod(entry_path(".cubin"), 0) == 0);
    EXPECT_ORIGIN(scene_run(job), JIT_COMPILED);
    EXPECT_ORIGIN(scene_run(job), JIT_FROM_DISK);
    EXPECT(chmod(scene_path("cache/test_kernel"), 0555) == 0);
    EXPECT_ORIGIN(scene_run(job), JIT_FROM_DISK);
    other.config = "#define VALUE 2\n";
    job.request = other;
    EXPECT_ORIGIN(scene_run(job), JIT_COMPILED);
    EXPECT_ORIGIN(scene_run(job), JIT_COMPILED);
    EXPECT_INT(count_files(scene_path("cache/test_kernel")), 1);
    EXPECT(chmod(scene_path("cache/test_kernel"), 0755) == 0);
}

/* ---- Entries of older compilers ---------------------------------------------------------------------------------- */

static void write_old_entry(int32_t compiler)
{
    static const char image[] = "old";
    struct direct direct;
    open_direct(&direct);
    cache_write(&direct.place, &(struct cache_entry){(void *)(uintptr_t)image, sizeof image, compiler, 0});
    close_direct(&direct);
}

static void fail_before(void)
{
    remove_compiler();
    fail_text("an earlier failure");
}

TEST(entries_of_old_compilers_are_remade_only_when_a_newer_one_is_there)
{
    struct get_job job = {.request = scene_request(), .may_compile = true, .prepare = fail_before};
    struct outcome outcome;
    scene_begin();
    write_old_entry(12080);
    outcome = scene_run(job);
    EXPECT_ORIGIN(outcome, JIT_FROM_DISK);
    EXPECT_INT(outcome.bytes, 4);
    EXPECT_TEXT(outcome.message, "an earlier failure"); /* a success leaves the sentence alone */
    EXPECT_ORIGIN(scene_run((struct get_job){.request = scene_request(), .may_compile = false}), JIT_FROM_DISK);
    outcome = scene_get(scene_request());
    EXPECT_ORIGIN(outcome, JIT_COMPILED);
    EXPECT(outcome.bytes > 1000);
    EXPECT_ORIGIN(scene_get(scene_request()), JIT_FROM_DISK);
    write_old_entry(12090);
    EXPECT_ORIGIN(scene_get(scene_request()), JIT_FROM_DISK);
}

/* Here is NVRTC 13, whose cubins a driver of CUDA 13 reads; an entry of a later one is of no use to it. */
TEST(entries_that_the_driver_cannot_read_are_remade)
{
    struct get_job job = {.request = scene_request(), .may_compile = true};
    scene_begin();
    write_old_entry(99000);
    job.request.driver_major = 12; /* NVRTC 13 would do no better */
    EXPECT_ORIGIN(scene_run(job), JIT_FROM_DISK);
    job.request.driver_major = 13;
    job.may_compile = false;
    EXPECT_ORIGIN(scene_run(job), JIT_FROM_DISK);
    job.may_compile = true;
    EXPECT_ORIGIN(scene_run(job), JIT_COMPILED);
    EXPECT_ORIGIN(scene_run(job), JIT_FROM_DISK);
    job.request.driver_major = 0;
    write_old_entry(99000);
    EXPECT_ORIGIN(scene_run(job), JIT_FROM_DISK);
}

/* ---- Disks that refuse ------------------------------------------------------------------------------------------- */

TEST(a_directory_that_cannot_be_made_is_no_error)
{
    static const char *const directories[] = {"file/cache", "file"};
    scene_begin();
    scene_write(scene_path("file"), "", 0);
    for (int i = 0; i < 2; ++i) {
        setenv("DG_JIT_CACHE_DIR", scene_path(directories[i]), 1);
        EXPECT_ORIGIN(scene_get(scene_request()), JIT_COMPILED);
    }
    setenv("DG_JIT_CACHE_DIR", "/proc/deepgemm", 1);
    EXPECT_ORIGIN(scene_get(scene_request()), JIT_COMPILED);
}

/* Files may not grow beyond 1000 bytes, as on a disk that fills up in the middle of an entry. */
static void fill_disk(void)
{
    const struct rlimit limit = {1000, 1000};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        _exit(1);
}

TEST(a_full_disk_is_no_error_and_leaves_nothing_behind)
{
    struct get_job job = {.request = scene_request(), .may_compile = true, .prepare = fill_disk};
    scene_begin();
    EXPECT_ORIGIN(scene_run(job), JIT_COMPILED);
    EXPECT_INT(count_files(scene_path("cache/test_kernel")), 0);
    EXPECT_ORIGIN(scene_get(scene_request()), JIT_COMPILED);
    EXPECT_ORIGIN(scene_get(scene_request()), JIT_FROM_DISK);
}

static void set_age(const char *path, time_t seconds)
{
    const struct timespec times[2] = {{time(NULL) - seconds, 0}, {time(NULL) - seconds, 0}};
    EXPECT(utimensat(AT_FDCWD, path, times, 0) == 0);
}

TEST(private_files_of_dead_writers_are_swept_after_an_hour)
{
    scene_begin();
    EXPECT(mkdir(scene_cache, 0755) == 0 && mkdir(scene_path("cache/test_kernel"), 0755) == 0);
    scene_write(scene_path("cache/test_kernel/old.1.0.tmp"), "x", 1);
    scene_write(scene_path("cache/test_kernel/young.2.0.tmp"), "x", 1);
    scene_write(scene_path("cache/test_kernel/unrelated"), "x", 1);
    set_age(scene_path("cache/test_kernel/old.1.0.tmp"), 4000);
    set_age(scene_path("cache/test_kernel/young.2.0.tmp"), 3000);
    set_age(scene_path("cache/test_kernel/unrelated"), 4000);
    EXPECT_ORIGIN(scene_get(scene_request()), JIT_COMPILED);
    EXPECT(!scene_exists(scene_path("cache/test_kernel/old.1.0.tmp")));
    EXPECT(scene_exists(scene_path("cache/test_kernel/young.2.0.tmp")));
    EXPECT(scene_exists(scene_path("cache/test_kernel/unrelated")));
}

/* ---- Many processes ---------------------------------------------------------------------------------------------- */

enum { PROCESSES = 16 };

struct race_job {
    int gate; /* read end of a pipe: closes when all may begin */
    struct outcome *outcome;
};

static void race_body(void *argument)
{
    struct race_job *race = argument;
    struct get_job job = {.request = scene_request(), .may_compile = true, .outcome = race->outcome};
    char byte;
    if (read(race->gate, &byte, 1) != 0)
        _exit(1);
    scene_get_body(&job);
}

TEST(many_processes_on_a_cold_cache_compile_once)
{
    struct outcome *outcomes = scene_shared(PROCESSES * sizeof *outcomes);
    pid_t children[PROCESSES];
    int gate[2], compiled = 0;
    scene_begin();
    EXPECT(pipe2(gate, O_CLOEXEC) == 0);
    for (int i = 0; i < PROCESSES; ++i) {
        struct race_job job = {gate[0], &outcomes[i]};
        children[i] = fork();
        if (children[i] == 0) {
            alarm(SCENE_SECONDS);
            close(gate[1]);
            race_body(&job);
            _exit(0);
        }
    }
    close(gate[0]);
    close(gate[1]);
    for (int i = 0; i < PROCESSES; ++i)
        scene_wait(children[i]);
    for (int i = 0; i < PROCESSES; ++i) {
        EXPECT_THAT(outcomes[i].status == DG_SUCCESS && outcomes[i].done, "%s", outcomes[i].message);
        EXPECT(outcomes[i].image.low == outcomes[0].image.low);
        compiled += outcomes[i].origin == JIT_COMPILED;
    }
    EXPECT_INT(compiled, 1);
    EXPECT_INT(count_files(scene_path("cache/test_kernel")), 1);
}

/* ---- Lock holders that die or hang ------------------------------------------------------------------------------- */

struct holder {
    _Atomic bool holds;
    bool fork_and_die; /* leave a child behind that was forked while the lock was held */
    pid_t left_behind;
};

static void hold_body(void *argument)
{
    struct holder *holder = argument;
    struct direct direct;
    open_direct(&direct);
    cache_lock(&direct.place);
    if (direct.place.lock < 0)
        _exit(1);
    if (holder->fork_and_die && fork() != 0)
        _exit(0); /* without cache_close */
    holder->left_behind = getpid();
    holder->holds = true;
    sleep(SCENE_SECONDS);
}

static pid_t start_holder(struct holder *holder)
{
    pid_t child;
    memset(holder, 0, sizeof *holder);
    child = scene_fork(hold_body, holder);
    for (int i = 0; i < 5000 && !holder->holds; ++i)
        usleep(1000);
    EXPECT(holder->holds);
    return child;
}

static void kill_holder(pid_t child)
{
    EXPECT(kill(child, SIGKILL) == 0);
    EXPECT(waitpid(child, NULL, 0) == child);
}

TEST(a_killed_holder_frees_those_who_wait)
{
    struct holder *holder = scene_shared(sizeof *holder);
    struct outcome *outcome = scene_shared(sizeof *outcome);
    struct get_job job = {.request = scene_request(), .may_compile = true, .outcome = outcome};
    pid_t held_by, waiter;
    scene_begin();
    held_by = start_holder(holder);
    waiter = scene_fork(scene_get_body, &job);
    usleep(700000);
    EXPECT_THAT(waitpid(waiter, NULL, WNOHANG) == 0, "it did not wait for the lock");
    kill_holder(held_by);
    scene_wait(waiter);
    EXPECT_ORIGIN(*outcome, JIT_COMPILED);
    EXPECT_INT(count_files(scene_path("cache/test_kernel")), 1); /* the holder's lock file went too */
}

TEST(a_stuck_holder_is_not_waited_for_beyond_the_timeout)
{
    struct holder *holder = scene_shared(sizeof *holder);
    struct outcome outcome;
    double begin, seconds;
    pid_t held_by;
    scene_begin();
    held_by = start_holder(holder);
    setenv("DG_JIT_LOCK_TIMEOUT", "1", 1);
    begin = clock_seconds();
    outcome = scene_get(scene_request());
    seconds = clock_seconds() - begin;
    kill_holder(held_by);
    EXPECT_ORIGIN(outcome, JIT_COMPILED);
    EXPECT_THAT(seconds >= 1 && seconds < 20, "%.2f s", seconds);
    EXPECT_ORIGIN(scene_get(scene_request()), JIT_FROM_DISK);
}

/* While somebody compiles one kernel, entries can be read and other kernels compiled. */
TEST(a_lock_stops_nobody_else)
{
    struct holder *holder = scene_shared(sizeof *holder);
    struct jit_request other = scene_request();
    struct outcome outcome;
    pid_t held_by;
    double begin;
    scene_begin();
    EXPECT_ORIGIN(scene_get(scene_request()), JIT_COMPILED);
    held_by = start_holder(holder);
    begin = clock_seconds();
    EXPECT_ORIGIN(scene_get(scene_request()), JIT_FROM_DISK);
    other.config = "#define VALUE 2\n";
    outcome = scene_get(other);
    EXPECT_ORIGIN(outcome, JIT_COMPILED);
    EXPECT(clock_seconds() - begin < 30);
    kill_holder(held_by);
}

static void die_leaving_a_child(void *argument)
{
    struct holder *holder = argument;
    holder->fork_and_die = true;
    hold_body(holder);
}

TEST(a_child_of_the_holder_does_not_hold_the_lock)
{
    struct holder *holder = scene_shared(sizeof *holder);
    struct outcome outcome;
    double begin;
    scene_begin();
    setenv("DG_JIT_LOCK_TIMEOUT", "50", 1);
    scene_wait(scene_fork(die_leaving_a_child, holder));
    for (int i = 0; i < 5000 && !holder->holds; ++i)
        usleep(1000);
    begin = clock_seconds();
    outcome = scene_get(scene_request());
    EXPECT(holder->holds && kill(holder->left_behind, SIGKILL) == 0); /* it lived until now */
    EXPECT_ORIGIN(outcome, JIT_COMPILED);
    EXPECT(clock_seconds() - begin < 30);
}

struct fork_job {
    struct outcome parent, child;
};

static void *wait_for_lock(void *argument)
{
    struct fork_job *job = argument;
    struct get_job get = {.request = scene_request(), .may_compile = true, .outcome = &job->parent};
    scene_get_body(&get);
    return NULL;
}

/* Fork while another thread waits, its kernel marked as being made: the child must not wait for that thread. */
static void fork_while_waiting(void *argument)
{
    struct fork_job *job = argument;
    struct get_job get = {.request = scene_request(), .may_compile = true, .outcome = &job->child};
    pthread_t thread;
    pid_t child;
    setenv("DG_JIT_LOCK_TIMEOUT", "3", 1);
    if (pthread_create(&thread, NULL, wait_for_lock, job) != 0)
        _exit(1);
    usleep(700000);
    child = fork();
    if (child == 0) {
        setenv("DG_JIT_CACHE_DIR", scene_path("other"), 1); /* where nobody holds a lock */
        alarm(30);
        scene_get_body(&get);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    pthread_join(thread, NULL);
}

TEST(a_child_forked_while_a_thread_waits_makes_its_own_kernel)
{
    struct holder *holder = scene_shared(sizeof *holder);
    struct fork_job *job = scene_shared(sizeof *job);
    pid_t held_by;
    scene_begin();
    held_by = start_holder(holder);
    scene_wait(scene_fork(fork_while_waiting, job));
    kill_holder(held_by);
    EXPECT(job->child.done && job->parent.done);
    EXPECT_ORIGIN(job->child, JIT_COMPILED);
    EXPECT_ORIGIN(job->parent, JIT_COMPILED);
}

struct contest {
    atomic_int inside;
    atomic_int entered, intruded, locked;
};

enum { CONTESTANTS = 8, ROUNDS = 2000 };

static void contest_body(void *argument)
{
    struct contest *contest = argument;
    for (int i = 0; i < ROUNDS; ++i) {
        struct direct direct;
        open_direct(&direct);
        cache_lock(&direct.place);
        contest->entered += 1;
        contest->locked += direct.place.lock >= 0;
        contest->intruded += atomic_fetch_add(&contest->inside, 1) != 0;
        sched_yield();
        contest->inside -= 1;
        close_direct(&direct);
    }
}

/* Every holder removes the lock file, while others are about to open and lock it. */
TEST(two_never_hold_a_lock_at_once)
{
    struct contest *contest = scene_shared(sizeof *contest);
    pid_t children[CONTESTANTS];
    scene_begin();
    for (int i = 0; i < CONTESTANTS; ++i)
        children[i] = scene_fork(contest_body, contest);
    for (int i = 0; i < CONTESTANTS; ++i)
        scene_wait(children[i]);
    EXPECT_INT(contest->entered, CONTESTANTS * ROUNDS);
    EXPECT_INT(contest->locked, CONTESTANTS * ROUNDS);
    EXPECT_INT(contest->intruded, 0);
}

/* ---- Dumps ------------------------------------------------------------------------------------------------------- */

static void write_script(const char *path, const char *text)
{
    scene_write(path, text, strlen(text));
    EXPECT(chmod(path, 0755) == 0);
}

TEST(ptx_and_sass_are_stored_beside_the_entry)
{
    char longer[8192];
    size_t bytes;
    unsigned char *text;
    scene_begin();
    EXPECT(mkdir(scene_path("bin"), 0755) == 0);
    write_script(scene_path("bin/cuobjdump"),
                 "#!/bin/sh\n[ \"$1\" = -sass ] && head -c 4 \"$2\" && echo disassembled\n");
    snprintf(longer, sizeof longer, "%s:%s", scene_path("bin"), getenv("PATH"));
    setenv("PATH", longer, 1);
    setenv("DG_JIT_DUMP_ASM", "1", 1);
    EXPECT_ORIGIN(scene_get(scene_request()), JIT_COMPILED);
    text = scene_read(entry_path(".ptx"), &bytes);
    EXPECT_TEXT((const char *)text, ".target sm_90a");
    free(text);
    text = scene_read(entry_path(".sass"), &bytes);
    EXPECT_TEXT((const char *)text, "\177ELFdisassembled");
    free(text);
    EXPECT_INT(count_files(scene_path("cache/test_kernel")), 3);
}

TEST(a_failing_disassembler_is_no_error)
{
    scene_begin();
    EXPECT(mkdir(scene_path("bin"), 0755) == 0);
    write_script(scene_path("bin/cuobjdump"), "#!/bin/sh\necho partial\nexit 3\n");
    setenv("PATH", scene_path("bin"), 1);
    unsetenv("CUDA_HOME");
    setenv("DG_JIT_DUMP_SASS", "1", 1);
    EXPECT_ORIGIN(scene_get(scene_request()), JIT_COMPILED);
    EXPECT_INT(count_files(scene_path("cache/test_kernel")), 1);
}

/* ---- What is printed --------------------------------------------------------------------------------------------- */

TEST(nothing_is_printed_unless_asked_for)
{
    struct get_job job = {.request = scene_request(), .may_compile = true, .prepare = scene_catch_stderr};
    size_t bytes;
    unsigned char *text;
    scene_begin();
    EXPECT_ORIGIN(scene_run(job), JIT_COMPILED);
    text = scene_read(scene_path("stderr"), &bytes);
    EXPECT_INT(bytes, 0);
    free(text);
    EXPECT(unlink(entry_path(".cubin")) == 0);
    setenv("DG_JIT_DEBUG", "1", 1);
    setenv("DG_JIT_PTXAS_VERBOSE", "1", 1);
    setenv("DG_JIT_PRINT_LOAD_TIME", "1", 1);
    setenv("DG_JIT_PRINT_COMPILER_COMMAND", "1", 1);
    EXPECT_ORIGIN(scene_run(job), JIT_COMPILED);
    text = scene_read(scene_path("stderr"), &bytes);
    EXPECT_TEXT((const char *)text, "deepgemm: jit: compiled test_kernel ");
    EXPECT_TEXT((const char *)text, "deepgemm: test_kernel: ptxas info    : Used ");
    EXPECT_TEXT((const char *)text, "compiled in ");
    EXPECT_TEXT((const char *)text, "--gpu-architecture=sm_90a");
    free(text);
    scene_write(entry_path(".cubin"), "junk", 4);
    EXPECT_ORIGIN(scene_run(job), JIT_COMPILED);
    text = scene_read(scene_path("stderr"), &bytes);
    EXPECT_TEXT((const char *)text, ".cubin is damaged: it is too short");
    free(text);
    EXPECT_ORIGIN(scene_run(job), JIT_FROM_DISK);
    text = scene_read(scene_path("stderr"), &bytes);
    EXPECT_TEXT((const char *)text, "deepgemm: jit: read ");
    free(text);
}
