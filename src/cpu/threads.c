#include "cpu/threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

/*
 * Threads are made for a loop and end with it. A pool, such as OpenMP's, would save some 50 us a thread and call, but
 * outlives dlclose, is missing in forked children, and libgomp ends the process where a thread cannot be made.
 */
enum { MOST_THREADS = 256, WORTH_A_THREAD = 100000 /* ns */ };

struct loop {
    void (*body)(void *user, int64_t begin, int64_t end);
    void *user;
    int64_t count, shares;
    _Atomic int64_t next; /* share that nobody has taken */
};

static _Thread_local bool inside; /* a body */

int cpu_threads(void)
{
    const char *wish = getenv("OMP_NUM_THREADS"); /* a list with levels begins with the one that counts here */
    const long number = wish ? strtol(wish, NULL, 10) : 0;
    cpu_set_t allowed;
    if (number > 0)
        return number < MOST_THREADS ? (int)number : MOST_THREADS;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return 1; /* more than 1,024 processors */
    return CPU_COUNT(&allowed) < MOST_THREADS ? CPU_COUNT(&allowed) : MOST_THREADS;
}

/* Shares differ by one at most. */
static int64_t share_begin(const struct loop *loop, int64_t share)
{
    const int64_t size = loop->count / loop->shares, rest = loop->count % loop->shares;
    return share * size + (share < rest ? share : rest);
}

static void *take_shares(void *argument)
{
    struct loop *loop = argument;
    const bool before = inside;
    inside = true;
    for (int64_t share; (share = atomic_fetch_add(&loop->next, 1)) < loop->shares;)
        loop->body(loop->user, share_begin(loop, share), share_begin(loop, share + 1));
    inside = before;
    return NULL;
}

/* The application's signal handlers run on its own threads. Returns how many threads were made. */
static int make_threads(struct loop *loop, pthread_t *threads)
{
    sigset_t all, before;
    int made = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    while (made + 1 < loop->shares && pthread_create(&threads[made], NULL, take_shares, loop) == 0)
        ++made;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return made;
}

static int64_t least(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

/* One for each 100 us of work, as many as there are indices and processors. */
static int64_t shares_of(int64_t count, int64_t cost)
{
    int64_t whole;
    if (inside || count == 1)
        return 1;
    if (__builtin_mul_overflow(count, cost, &whole))
        whole = INT64_MAX;
    const int64_t worth = least(count, whole / WORTH_A_THREAD);
    return worth > 1 ? least(worth, cpu_threads()) : 1;
}

void cpu_parallel_for(int64_t count, int64_t cost, void (*body)(void *user, int64_t begin, int64_t end), void *user)
{
    pthread_t threads[MOST_THREADS];
    struct loop loop = {body, user, count, 1, 0};
    if (count <= 0)
        return;
    loop.shares = shares_of(count, cost);
    const int made = make_threads(&loop, threads);
    take_shares(&loop); /* the caller takes part, and does all where no thread could be made */
    for (int i = 0; i < made; ++i)
        pthread_join(threads[i], NULL);
}
