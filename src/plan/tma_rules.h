/* What the tensor memory accelerator (TMA) can address. Pure: planning asks here, long before a map is made. */
#ifndef PLAN_TMA_RULES_H
#define PLAN_TMA_RULES_H

#include "core/tensor.h"

/*
 * Why TMA cannot address the matrix ("a's row stride is 1000 bytes, no multiple of 16"), or an empty text. A NULL
 * `data` passes for an aligned pointer.
 */
struct text tma_refusal(const char *name, const struct matrix *m);

#endif
