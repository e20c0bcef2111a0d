/* dg_gemm, and the questions about it. */
#include "core/context.h"
#include "core/log.h"
#include "ops/gemm_memo.h"
#include "ops/device.h"
#include "ops/kernel.h"
#include "plan/scale_problem.h"

#include <stdio.h>
#include <string.h>

/* ---- Arguments ----------------------------------------------------------------------------------------------- */

/* With what the context says where the caller says nothing. */
static dg_status import_gemm_args(dg_context *context, const dg_gemm_args *given, dg_gemm_args *args)
{
    CHECK(import_args(args, sizeof *args, given, "dg_gemm_args"));
    if (args->alignment == 0 && (args->kind == DG_GEMM_CONTIGUOUS || args->kind == DG_GEMM_PSUM))
        args->alignment = (int32_t)context_get(context, DG_SETTING_CONTIGUOUS_ALIGNMENT);
    return DG_SUCCESS;
}

/* ---- Choosing ------------------------------------------------------------------------------------------------ */

static dg_status make_plan(dg_context *context, const struct gemm_problem *p, const dg_device_info *device,
                           int32_t num_sms, struct gemm_plan *plan, char *refused, size_t bytes)
{
    const struct gemm_terms terms = {device, num_sms, context_get(context, DG_SETTING_BATCH_INVARIANT) != 0};
    *plan = (struct gemm_plan){0};
    CHECK(gemm_select(p, &terms, &plan->row, refused, bytes));
    if (device && !gemm_problem_empty(p))
        plan->row->plan(p, &terms, plan);
    return DG_SUCCESS;
}

static dg_status check_workspace(const struct gemm_plan *plan, const dg_gemm_args *args)
{
    if (args->workspace_bytes >= plan->workspace_bytes)
        return DG_SUCCESS;
    return fail(DG_ERROR_WORKSPACE_TOO_SMALL, "workspace_bytes is %zu; %s wants %zu", args->workspace_bytes,
                plan->row->name, plan->workspace_bytes);
}

/* ---- Running on a GPU ---------------------------------------------------------------------------------------- */

/* An empty matrix (K = 0) has no memory to check; NULL gets here in questions only, which it leaves open. */
static dg_status check_pointer(const struct cuda_scope *scope, const char *name, const struct matrix *m)
{
    const bool nothing = m->rows == 0 || m->cols == 0 || m->data == NULL;
    return nothing ? DG_SUCCESS : cuda_check_pointer(scope, name, m->data);
}

static dg_status check_pointers(const struct cuda_scope *scope, const struct gemm_problem *p)
{
    CHECK(check_pointer(scope, "a", &p->a));
    CHECK(check_pointer(scope, "b", &p->b));
    CHECK(check_pointer(scope, "sfa", &p->sfa));
    CHECK(check_pointer(scope, "sfb", &p->sfb));
    CHECK(check_pointer(scope, "layout", &p->layout));
    if (p->has_c)
        CHECK(check_pointer(scope, "c", &p->c));
    return check_pointer(scope, "d", &p->d);
}

static void print_choice(const struct gemm_problem *p, const struct gemm_plan *plan)
{
    char line[512];
    if (!env_flag(ENV_PRINT_CONFIGS))
        return;
    plan->row->line(plan, line, sizeof line);
    log_line(ENV_PRINT_CONFIGS, "%s -> %s %s", gemm_problem_text(p).s, plan->row->name, line);
}

/* A problem this thread has not seen: choose, and get the kernel. */
static dg_status plan_new(dg_context *context, const struct cuda_scope *scope, const struct gemm_problem *p,
                          int32_t num_sms, struct gemm_planned *planned)
{
    struct kernel_spec spec;
    CHECK(make_plan(context, p, &scope->device->info, num_sms, &planned->plan, NULL, 0));
    planned->plan.row->spec(p, &planned->plan, &spec);
    print_choice(p, &planned->plan);
    return kernel_get(context, scope, &spec.request, planned->plan.smem_bytes, &planned->kernel);
}

/* A context that is new to the kernel gets its code now, so that the launch has nothing left to load. */
static dg_status load_into(const struct cuda_scope *scope, const struct cuda_kernel *kernel, CUcontext *loaded_in)
{
    if (*loaded_in == scope->context)
        return DG_SUCCESS;
    CHECK(cuda_kernel_touch(scope, kernel));
    *loaded_in = scope->context;
    return DG_SUCCESS;
}

static dg_status find_plan(dg_context *context, uint64_t epoch, const struct cuda_scope *scope,
                           const struct gemm_problem *p, int32_t per_call_sms, struct gemm_planned *planned)
{
    int32_t num_sms = context_sms(context, per_call_sms, scope->device->info.num_sms);
    struct gemm_key key = gemm_key_of(epoch, p, num_sms);
    struct gemm_planned *known = gemm_memo_problem(&key);
    if (known) {
        CHECK(load_into(scope, &known->kernel, &known->loaded_in));
        *planned = *known;
        return DG_SUCCESS;
    }
    CHECK(plan_new(context, scope, p, num_sms, planned));
    planned->key = key;
    planned->loaded_in = scope->context;
    struct gemm_planned *slot = gemm_memo_new_problem(&key);
    if (slot)
        *slot = *planned;
    return DG_SUCCESS;
}

/* Fill a call from new arguments: everything but the launch itself. */
static dg_status prepare(dg_context *context, uint64_t epoch, const struct cuda_scope *scope,
                         const struct gemm_problem *p, const dg_gemm_args *args, struct gemm_call *call)
{
    struct gemm_planned planned;
    CHECK(check_pointers(scope, p));
    CHECK(find_plan(context, epoch, scope, p, args->num_sms, &planned));
    struct gemm_plan *plan = &planned.plan;
    const bool pdl = context_get(context, DG_SETTING_PDL) != 0;
    CHECK(check_workspace(plan, args));
    plan->b_early = pdl && (args->flags & DG_GEMM_B_CONSTANT) != 0;
    call->launch = (struct cuda_launch){
        .kernel = planned.kernel,
        .grid = {plan->grid, 1, 1},
        .threads = plan->threads,
        .cluster = plan->cluster,
        .pdl = pdl,
    };
    call->loaded_in = scope->context;
    return plan->row->bind(p, plan, scope->driver, &call->kernel_args);
}

static dg_status launch_new(dg_context *context, uint64_t epoch, const struct cuda_scope *scope,
                            const struct gemm_problem *p, const dg_gemm_args *args, dg_stream stream)
{
    struct gemm_call call;
    CHECK(prepare(context, epoch, scope, p, args, &call));
    CHECK(cuda_launch(scope, &call.launch, &call.kernel_args, stream));
    struct gemm_call *slot = gemm_memo_new_call(epoch, args);
    if (slot) {
        slot->launch = call.launch;
        slot->loaded_in = call.loaded_in;
        slot->kernel_args = call.kernel_args;
    }
    return DG_SUCCESS;
}

static dg_status run_new(dg_context *context, uint64_t epoch, const struct gemm_problem *p, const dg_gemm_args *args,
                         dg_stream stream)
{
    struct cuda_scope scope;
    CHECK(cuda_enter(p->device, stream, &scope));
    dg_status status = launch_new(context, epoch, &scope, p, args, stream);
    cuda_leave(&scope);
    return status;
}

/* The same call again: nothing to check, choose or encode. */
static dg_status run_again(struct gemm_call *call, dg_stream stream)
{
    struct cuda_scope scope;
    dg_status status = DG_SUCCESS;
    CHECK(cuda_enter(call->args.d.device, stream, &scope));
    CHECKGOTO(load_into(&scope, &call->launch.kernel, &call->loaded_in), status, leave);
    status = cuda_launch(&scope, &call->launch, &call->kernel_args, stream);
leave:
    cuda_leave(&scope);
    return status;
}

/* ---- dg_gemm ------------------------------------------------------------------------------------------------- */

static dg_status run_on_cpu(const struct gemm_problem *problem)
{
    const struct gemm_row *row;
    CHECK(gemm_select(problem, &(struct gemm_terms){0}, &row, NULL, 0));
    row->run(problem);
    return DG_SUCCESS;
}

dg_status dg_gemm(dg_context *given, const dg_gemm_args *given_args, dg_stream stream)
{
    dg_context *context;
    dg_gemm_args args;
    struct gemm_problem problem;
    operation_begin("dg_gemm");
    CHECK(context_resolve(given, &context));
    CHECK(import_gemm_args(context, given_args, &args));
    uint64_t epoch = context_epoch(context);
    struct gemm_call *call = args.d.device >= 0 ? gemm_memo_call(epoch, &args) : NULL;
    if (call)
        return run_again(call, stream);
    CHECK(gemm_problem_make(&args, NULL_DATA_REFUSED, &problem));
    if (gemm_problem_empty(&problem))
        return DG_SUCCESS;
    return problem.device >= 0 ? run_new(context, epoch, &problem, &args, stream) : run_on_cpu(&problem);
}

/* ---- Questions ----------------------------------------------------------------------------------------------- */

static dg_status explain_scales(const struct gemm_problem *p, const dg_gemm_args *args, dg_explanation *out)
{
    /* dg_scale_layout's batch 0 is a matrix; here it is an empty batch. */
    const bool batched = args->sfa.ndim == 3;
    const int64_t batch = batched && p->batch == 0 ? 1 : batched ? p->batch : 0;
    const int64_t k = p->groups.kind == GEMM_KIND_K_GROUPED ? p->groups.k_blocks * SCALE_GROUP : p->k;
    CHECK(scale_layout(p->m, k, 1, SCALE_GROUP, args->sfa.dtype, batch, &out->sfa_layout, NULL));
    const int64_t groups = args->sfb.ndim == 3 ? max_i64(1, p->groups.groups) : 0;
    const int32_t gran_n = p->sfb_rows ? 1 : SCALE_GROUP;
    CHECK(scale_layout(p->n, k, gran_n, SCALE_GROUP, args->sfb.dtype, groups, &out->sfb_layout, NULL));
    if (batched)
        out->sfa_layout.shape[0] = p->batch;
    if (args->sfb.ndim == 3)
        out->sfb_layout.shape[0] = p->groups.groups;
    return DG_SUCCESS;
}

static dg_status explain(dg_context *context, const dg_gemm_args *args, const struct gemm_problem *p,
                         const dg_device_info *target, dg_explanation *out, struct gemm_plan *plan)
{
    dg_device_info storage, *device = NULL;
    int32_t num_sms = 0;
    if (target || p->device >= 0) {
        device = &storage;
        CHECK(device_target(target, p->device, device));
        num_sms = context_sms(context, args->num_sms, device->num_sms);
    }
    CHECK(make_plan(context, p, device, num_sms, plan, out->refused, sizeof out->refused));
    snprintf(out->row, sizeof out->row, "%s", plan->row->name);
    if (device && !gemm_problem_empty(p))
        plan->row->line(plan, out->config, sizeof out->config);
    out->workspace_bytes = plan->workspace_bytes;
    return explain_scales(p, args, out);
}

dg_status dg_gemm_explain(dg_context *given, const dg_gemm_args *given_args, const dg_device_info *target,
                          dg_explanation *explanation)
{
    dg_context *context;
    dg_gemm_args args;
    struct gemm_problem problem;
    dg_explanation out = {.size = sizeof out};
    struct gemm_plan plan;
    operation_begin("dg_gemm_explain");
    CHECK(context_resolve(given, &context));
    CHECK(import_gemm_args(context, given_args, &args));
    if (explanation == NULL)
        return fail(DG_ERROR_INVALID_ARGUMENT, "explanation is NULL; wanted where to store it");
    CHECK(gemm_problem_make(&args, NULL_DATA_ACCEPTED, &problem));
    CHECK(explain(context, &args, &problem, target, &out, &plan));
    return export_struct(explanation, &out, sizeof out, "dg_explanation");
}

/* What dg_gemm would find when it looks at the pointers; those that are NULL in a question are fine. */
static dg_status ask_pointers(const struct gemm_problem *p)
{
    struct cuda_scope scope;
    if (p->device < 0)
        return DG_SUCCESS;
    CHECK(cuda_enter(p->device, NULL, &scope));
    dg_status status = check_pointers(&scope, p);
    cuda_leave(&scope);
    return status;
}

static dg_status would_accept(dg_context *given, const dg_gemm_args *given_args)
{
    dg_context *context;
    dg_gemm_args args;
    struct gemm_problem problem;
    dg_explanation unused = {.size = sizeof unused};
    struct gemm_plan plan;
    CHECK(context_resolve(given, &context));
    CHECK(import_gemm_args(context, given_args, &args));
    CHECK(gemm_problem_make(&args, NULL_DATA_ACCEPTED, &problem));
    if (gemm_problem_empty(&problem))
        return DG_SUCCESS;
    CHECK(explain(context, &args, &problem, NULL, &unused, &plan));
    CHECK(check_workspace(&plan, &args));
    return ask_pointers(&problem);
}

bool dg_is_supported(dg_context *given, const dg_gemm_args *given_args)
{
    operation_begin("dg_is_supported");
    return would_accept(given, given_args) == DG_SUCCESS;
}
