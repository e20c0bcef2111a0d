#include "ops/gemm_memo.h"

#include "core/hash.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Sets of a few entries each: 1,024 calls are a model's layers with a few M each. The pages of 1.7 MB are touched as
   they are needed. */
enum { SET = 4, CALL_SETS = 256, PROBLEM_SETS = 64 };

struct memo {
    struct gemm_call calls[CALL_SETS][SET];
    struct gemm_planned problems[PROBLEM_SETS][SET];
    uint8_t next_call[CALL_SETS], next_problem[PROBLEM_SETS]; /* the entry of each set to forget next */
};

/* `block` is what was allocated; tensor maps want an alignment of 64 bytes that calloc does not give. */
static _Thread_local struct memo *memo;
static pthread_key_t block_key;
static bool have_key; /* a process has 1,024 at most; without one nothing is remembered */
static pthread_once_t block_once = PTHREAD_ONCE_INIT;

/* At the end of a thread; another destructor may still call us, and then starts anew. */
static void forget(void *block)
{
    memo = NULL;
    free(block);
}

static void make_key(void)
{
    have_key = pthread_key_create(&block_key, forget) == 0;
}

static struct memo *memo_get(void)
{
    const uintptr_t align = _Alignof(struct memo);
    if (memo)
        return memo;
    pthread_once(&block_once, make_key);
    if (!have_key)
        return NULL;
    char *block = calloc(1, sizeof *memo + align);
    if (block == NULL || pthread_setspecific(block_key, block) != 0) {
        free(block);
        return NULL;
    }
    memo = (struct memo *)(void *)(block + (align - (uintptr_t)block % align) % align);
    return memo;
}

static uint64_t call_set(uint64_t epoch, const dg_gemm_args *args)
{
    return (hash_words(args, sizeof *args) ^ epoch) % CALL_SETS;
}

struct gemm_call *gemm_memo_call(uint64_t epoch, const dg_gemm_args *args)
{
    struct memo *m = memo_get();
    if (m == NULL)
        return NULL;
    struct gemm_call *set = m->calls[call_set(epoch, args)];
    for (int i = 0; i < SET; ++i)
        if (set[i].epoch == epoch && memcmp(&set[i].args, args, sizeof *args) == 0)
            return &set[i];
    return NULL;
}

struct gemm_call *gemm_memo_new_call(uint64_t epoch, const dg_gemm_args *args)
{
    struct memo *m = memo_get();
    if (m == NULL)
        return NULL;
    uint64_t set = call_set(epoch, args);
    struct gemm_call *call = &m->calls[set][m->next_call[set]++ % SET];
    call->epoch = epoch;
    call->args = *args;
    return call;
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
    const struct gemm_groups *g = &p->groups;
    const int64_t flags = p->has_c | p->sfb_rows << 1 | p->a_flat << 2 | p->b_flat << 3 | g->zero_padding << 4;
    struct gemm_key key = {{(int64_t)epoch, p->device, num_sms, flags, p->batch, p->m, p->n, p->k, p->a_row_stride,
                            g->kind, g->groups, g->k_blocks, g->alignment, p->expected_m}};
    int64_t *word = key.words + 14;
    word = add_matrix(word, &p->a);
    word = add_matrix(word, &p->b);
    word = add_matrix(word, &p->sfa);
    word = add_matrix(word, &p->sfb);
    word = add_matrix(word, &p->d);
    if (p->has_c)
        add_matrix(word, &p->c);
    return key;
}

struct gemm_planned *gemm_memo_problem(const struct gemm_key *key)
{
    struct memo *m = memo_get();
    if (m == NULL)
        return NULL;
    struct gemm_planned *set = m->problems[hash_words(key, sizeof *key) % PROBLEM_SETS];
    for (int i = 0; i < SET; ++i)
        if (memcmp(&set[i].key, key, sizeof *key) == 0)
            return &set[i];
    return NULL;
}

struct gemm_planned *gemm_memo_new_problem(const struct gemm_key *key)
{
    struct memo *m = memo_get();
    if (m == NULL)
        return NULL;
    uint64_t set = hash_words(key, sizeof *key) % PROBLEM_SETS;
    struct gemm_planned *planned = &m->problems[set][m->next_problem[set]++ % SET];
    planned->key = *key;
    return planned;
}
