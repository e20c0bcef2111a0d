#include "ops/gemm_memo.h"

#include "core/hash.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 64, PROBLEMS = 64 }; /* about 150 KB per thread; a model's layers, a handful of M each */

struct memo {
    struct gemm_call calls[CALLS];
    struct gemm_planned problems[PROBLEMS];
};

static _Thread_local struct memo *memo;
static pthread_key_t memo_key;
static pthread_once_t memo_once = PTHREAD_ONCE_INIT;

static void make_key(void)
{
    pthread_key_create(&memo_key, free); /* frees a thread's memo at its end */
}

static struct memo *memo_get(void)
{
    if (memo == NULL) {
        pthread_once(&memo_once, make_key);
        memo = aligned_alloc(_Alignof(struct memo), sizeof *memo); /* tensor maps are aligned to 64 bytes */
        if (memo) {
            memset(memo, 0, sizeof *memo);
            pthread_setspecific(memo_key, memo);
        }
    }
    return memo;
}

static struct gemm_call *call_slot(uint64_t epoch, const dg_gemm_args *args)
{
    struct memo *m = memo_get();
    return m ? &m->calls[(hash_words(args, sizeof *args) ^ epoch) % CALLS] : NULL;
}

struct gemm_call *gemm_memo_call(uint64_t epoch, const dg_gemm_args *args)
{
    struct gemm_call *slot = call_slot(epoch, args);
    bool same = slot && slot->epoch == epoch && memcmp(&slot->args, args, sizeof *args) == 0;
    return same ? slot : NULL;
}

struct gemm_call *gemm_memo_new_call(uint64_t epoch, const dg_gemm_args *args)
{
    struct gemm_call *slot = call_slot(epoch, args);
    if (slot) {
        slot->epoch = epoch;
        slot->args = *args;
    }
    return slot;
}

/* ---- Problems ------------------------------------------------------------------------------------------------ */

static int64_t *add_matrix(int64_t *word, const struct matrix *m)
{
    const int64_t words[5] = {(int64_t)((uintptr_t)m->data & 15), (int64_t)m->dtype, m->batch_stride, m->row_stride,
                              m->col_stride};
    memcpy(word, words, sizeof words);
    return word + 5;
}

struct gemm_key gemm_key_of(uint64_t epoch, const struct gemm_problem *p, int32_t num_sms)
{
    struct gemm_key key = {{(int64_t)epoch, p->device, num_sms, p->has_c, p->batch, p->m, p->n, p->k}};
    int64_t *word = key.words + 8;
    word = add_matrix(word, &p->a);
    word = add_matrix(word, &p->b);
    word = add_matrix(word, &p->sfa);
    word = add_matrix(word, &p->sfb);
    word = add_matrix(word, &p->d);
    if (p->has_c)
        add_matrix(word, &p->c);
    return key;
}

static struct gemm_planned *problem_slot(const struct gemm_key *key)
{
    struct memo *m = memo_get();
    return m ? &m->problems[hash_words(key, sizeof *key) % PROBLEMS] : NULL;
}

struct gemm_planned *gemm_memo_problem(const struct gemm_key *key)
{
    struct gemm_planned *slot = problem_slot(key);
    return slot && memcmp(&slot->key, key, sizeof *key) == 0 ? slot : NULL;
}

struct gemm_planned *gemm_memo_new_problem(const struct gemm_key *key)
{
    struct gemm_planned *slot = problem_slot(key);
    if (slot)
        slot->key = *key;
    return slot;
}
