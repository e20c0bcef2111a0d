#include "cpu/threads.h"

#ifdef _OPENMP
#include <omp.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/stat.h>

/*
 * A child of fork has the calling thread only, yet OpenMP's records of its other threads: libgomp then waits for them
 * for ever. So a process forked while it had other threads, whoever made them, computes on one.
 */
static bool had_threads; /* at the fork in progress */
static bool alone;       /* in a child */

static void before_fork(void)
{
    /* Linux gives /proc/self/task two links and one per thread. When it cannot be read, expect the worst. */
    struct stat tasks;
    had_threads = stat("/proc/self/task", &tasks) != 0 || tasks.st_nlink != 3;
}

static void in_child(void)
{
    alone = alone || had_threads;
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(before_fork, NULL, in_child);
}

static void *pass(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* How many threads there can be, of `most`: the caller, and those that start and wait at the gate. */
static int try_threads(int most)
{
    enum { MOST = 1024 };
    pthread_t threads[MOST];
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    int count = 0;
    pthread_mutex_lock(&gate);
    while (count + 1 < most && count < MOST && pthread_create(&threads[count], NULL, pass, &gate) == 0)
        ++count;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < count; ++i)
        pthread_join(threads[i], NULL);
    return count + 1;
}

/*
 * Where a thread cannot be created (limits of processes or memory), libgomp ends the process. So it is asked only for
 * as many as have been seen to start. Each calling thread has a team of its own.
 */
static int threads_to_use(int most)
{
    static _Thread_local int tried = 1, seen = 1;
    if (most > tried) {
        seen = try_threads(most);
        tried = most;
    }
    return most < seen ? most : seen;
}

/* The share of thread `index` of `threads`: shares differ by one at most. */
static int64_t share_begin(int64_t count, int64_t threads, int64_t index)
{
    const int64_t size = count / threads, rest = count % threads;
    return index * size + (index < rest ? index : rest);
}

void cpu_parallel_for(int64_t count, void (*body)(void *user, int64_t begin, int64_t end), void *user)
{
    if (count <= 0)
        return;
    if (count == 1 || alone || omp_in_parallel()) {
        body(user, 0, count);
        return;
    }
    const int most = omp_get_max_threads(), team = threads_to_use(count < most ? (int)count : most);
#pragma omp parallel num_threads(team)
    {
        const int64_t threads = omp_get_num_threads(), index = omp_get_thread_num();
        body(user, share_begin(count, threads, index), share_begin(count, threads, index + 1));
    }
}

#else

void cpu_parallel_for(int64_t count, void (*body)(void *user, int64_t begin, int64_t end), void *user)
{
    if (count > 0)
        body(user, 0, count);
}

#endif
