#include "parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { MAX_THREADS = 64 };

struct loop {
    void (*body)(void *user, int64_t begin, int64_t end);
    void *user;
    int64_t count, step;
    _Atomic int64_t next;
};

int cpu_count(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

static void *work(void *argument)
{
    struct loop *loop = argument;
    int64_t begin;
    while ((begin = atomic_fetch_add(&loop->next, loop->step)) < loop->count) {
        const int64_t end = loop->count - begin < loop->step ? loop->count : begin + loop->step;
        loop->body(loop->user, begin, end);
    }
    return NULL;
}

void parallel_for(int64_t count, int64_t grain, void (*body)(void *user, int64_t begin, int64_t end), void *user)
{
    pthread_t threads[MAX_THREADS];
    const int wanted = cpu_count() < MAX_THREADS ? cpu_count() : MAX_THREADS;
    const int64_t share = count / (4 * (int64_t)wanted) / grain * grain; /* four pieces a thread, to even out */
    struct loop loop = {.body = body, .user = user, .count = count, .step = share > grain ? share : grain};
    int made = 0;
    while (made < wanted - 1 && count > loop.step * (made + 1) &&
           pthread_create(&threads[made], NULL, work, &loop) == 0)
        ++made;
    work(&loop); /* the calling thread takes part, and does all where no thread could be made */
    for (int i = 0; i < made; ++i)
        pthread_join(threads[i], NULL);
}
