#include "workspace.h"

#include "hooks.h"

/* What calls have been told, by their likeness. Under the GIL. Two that are mistaken for each other, which takes equal
   numbers of 64 bits, have a workspace that is too small refused by the library. */
enum { KNOWN_BITS = 8 };
static struct known {
    uint64_t likeness;
    size_t bytes;
} known[1 << KNOWN_BITS];

/* What the library refuses here it refuses in dg_gemm too, in better words. */
static size_t bytes_of(const struct call *call, const dg_gemm_args *args)
{
    const uint64_t likeness = call_likeness(call);
    struct known *const entry = &known[likeness >> (64 - KNOWN_BITS)];
    dg_explanation told = {.size = sizeof told};
    if (entry->likeness == likeness)
        return entry->bytes;
    if (dg_gemm_explain(NULL, args, NULL, &told) != DG_SUCCESS)
        return 0;
    *entry = (struct known){.likeness = likeness, .bytes = told.workspace_bytes};
    return told.workspace_bytes;
}

static bool refuse(const struct call *call, size_t bytes)
{
    PyErr_Format(PyExc_RuntimeError,
                 "%s: this product wants a workspace of %zu bytes on d's device, which d's framework gave none of; "
                 "wanted tensors of torch or CuPy",
                 call->function, bytes);
    return false;
}

static bool allocate(struct call *call, PyObject *like, size_t bytes, dg_gemm_args *args)
{
    dg_tensor memory;
    PyObject *const object = hook_workspace(like, bytes);
    if (object == NULL || !call_hold(call, object, call_release_object))
        return false;
    if (object == Py_None)
        return refuse(call, bytes);
    if (!call_tensor(call, "workspace", object, TENSOR_OUTPUT, &memory))
        return false;
    if (memory.device != args->d.device || memory.ndim != 1 ||
        (size_t)memory.shape[0] * dg_dtype_size(memory.dtype) < bytes)
        return refuse(call, bytes);
    args->workspace = memory.data;
    args->workspace_bytes = bytes;
    return true;
}

bool workspace_take(struct call *call, PyObject *like, dg_gemm_args *args)
{
    if (args->kind != DG_GEMM_K_GROUPED || args->d.device < 0) /* the others want none */
        return true;
    const size_t bytes = bytes_of(call, args);
    return bytes == 0 || allocate(call, like, bytes, args);
}
