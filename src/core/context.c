#include "core/context.h"

#include <stdlib.h>

static const uint64_t ALIVE = 0x64675f616c697665u; /* "dg_alive" */
static const uint64_t DEAD = 0x64675f6465616421u;

static _Atomic uint64_t next_epoch = 1;

/* ---- Settings ------------------------------------------------------------------------------------------------ */

bool contiguous_alignment_valid(int64_t v)
{
    return v == 8 || v == 16 || (v >= 32 && v <= 256 && v % 32 == 0);
}

struct setting_rule {
    const char *name;
    int64_t otherwise, low, high;
    bool (*valid)(int64_t);
    const char *wanted;
};

static const struct setting_rule rules[SETTING_COUNT] = {
    [DG_SETTING_NUM_SMS] = {"DG_SETTING_NUM_SMS", 0, 0, INT32_MAX, NULL, "0 (all) or a number of SMs"},
    [DG_SETTING_PDL] = {"DG_SETTING_PDL", 0, 0, 1, NULL, "0 or 1"},
    [DG_SETTING_TC_UTIL] = {"DG_SETTING_TC_UTIL", 100, 1, 100, NULL, "a percentage from 1 to 100"},
    [DG_SETTING_CONTIGUOUS_ALIGNMENT] = {"DG_SETTING_CONTIGUOUS_ALIGNMENT", 128, 8, 256, contiguous_alignment_valid,
                                         CONTIGUOUS_ALIGNMENT_WANTED},
    [DG_SETTING_BATCH_INVARIANT] = {"DG_SETTING_BATCH_INVARIANT", 0, 0, 1, NULL, "0 or 1"},
    [DG_SETTING_COMPILE] = {"DG_SETTING_COMPILE", 1, 0, 1, NULL, "0 or 1"},
};

static dg_status find_rule(dg_setting setting, const struct setting_rule **rule)
{
    if ((int)setting <= 0 || (int)setting >= SETTING_COUNT)
        return fail(DG_ERROR_INVALID_ARGUMENT, "setting is %d; wanted one of enum dg_setting, 1 to %d", (int)setting,
                    SETTING_COUNT - 1);
    *rule = &rules[setting];
    return DG_SUCCESS;
}

dg_status dg_set(dg_context *given, dg_setting setting, int64_t value)
{
    dg_context *context;
    const struct setting_rule *rule;
    operation_begin("dg_set");
    CHECK(context_resolve(given, &context));
    CHECK(find_rule(setting, &rule));
    if (value < rule->low || value > rule->high || (rule->valid && !rule->valid(value)))
        return fail(DG_ERROR_INVALID_ARGUMENT, "%s is %lld; wanted %s", rule->name, (long long)value, rule->wanted);
    atomic_store(&context->settings[setting], value);
    atomic_store(&context->epoch, atomic_fetch_add(&next_epoch, 1));
    return DG_SUCCESS;
}

dg_status dg_get(dg_context *given, dg_setting setting, int64_t *value)
{
    dg_context *context;
    const struct setting_rule *rule;
    operation_begin("dg_get");
    CHECK(context_resolve(given, &context));
    CHECK(find_rule(setting, &rule));
    if (value == NULL)
        return fail(DG_ERROR_INVALID_ARGUMENT, "value is NULL; wanted where to store %s", rule->name);
    *value = context_get(context, setting);
    return DG_SUCCESS;
}

int32_t context_sms(dg_context *context, int32_t per_call, int32_t device_sms)
{
    int64_t sms = device_sms, bound = context_get(context, DG_SETTING_NUM_SMS);
    if (per_call > 0)
        bound = per_call;
    if (bound > 0 && bound < sms)
        sms = bound;
    sms -= sms * (100 - context_get(context, DG_SETTING_TC_UTIL)) / 100;
    return (int32_t)(sms < 1 ? 1 : sms);
}

/* ---- Life ---------------------------------------------------------------------------------------------------- */

static void context_init(dg_context *context)
{
    for (int i = 1; i < SETTING_COUNT; ++i)
        atomic_init(&context->settings[i], rules[i].otherwise);
    atomic_init(&context->epoch, atomic_fetch_add(&next_epoch, 1));
    atomic_init(&context->magic, ALIVE);
}

dg_status dg_context_create(dg_context **context)
{
    operation_begin("dg_context_create");
    if (context == NULL)
        return fail(DG_ERROR_INVALID_ARGUMENT, "context is NULL; wanted where to store the new one");
    *context = calloc(1, sizeof **context);
    if (*context == NULL)
        return fail(DG_ERROR_OUT_OF_MEMORY, "%zu bytes for a context could not be allocated", sizeof **context);
    context_init(*context);
    return DG_SUCCESS;
}

void dg_context_destroy(dg_context *context)
{
    if (context == NULL)
        return;
    atomic_store(&context->magic, DEAD);
#ifdef DG_DEBUG
    static _Atomic(dg_context *) destroyed; /* reachable, so that leak checkers stay quiet */
    context->next_destroyed = atomic_exchange(&destroyed, context);
#else
    free(context);
#endif
}

static dg_context *default_context(void)
{
    static _Atomic(dg_context *) shared;
    dg_context *context = atomic_load_explicit(&shared, memory_order_acquire);
    if (context)
        return context;
    dg_context *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL)
        return NULL;
    context_init(fresh);
    if (atomic_compare_exchange_strong(&shared, &context, fresh))
        return fresh;
    free(fresh); /* another thread was first */
    return context;
}

dg_status context_resolve(dg_context *given, dg_context **context)
{
    *context = given ? given : default_context();
    if (*context == NULL)
        return fail(DG_ERROR_OUT_OF_MEMORY, "the default context could not be allocated");
    uint64_t magic = atomic_load_explicit(&(*context)->magic, memory_order_relaxed);
    if (magic == DEAD)
        return fail(DG_ERROR_CONTEXT_DESTROYED, "the context %p has been destroyed", (void *)given);
    if (magic != ALIVE)
        return fail(DG_ERROR_INVALID_ARGUMENT, "%p is not a context made by dg_context_create", (void *)given);
    return DG_SUCCESS;
}
