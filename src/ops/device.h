/* What to plan for: a device that is here, or the description of another. */
#ifndef OPS_DEVICE_H
#define OPS_DEVICE_H

#include "core/check.h"
#include "cuda/device.h"

/* The description given, checked, or for NULL that of the CUDA device `ordinal`. */
dg_status device_target(const dg_device_info *given, int32_t ordinal, dg_device_info *device);

#endif
