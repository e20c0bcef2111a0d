#include "ops/device.h"

#include <stdio.h>
#include <string.h>

/* NVIDIA's data sheets: SMs, memory and L2 of the SXM parts; shared memory is compute capability 9.0's. */
static const struct preset {
    const char *name, *full_name;
    int32_t num_sms;
    int64_t memory_gb, l2_mb;
} presets[] = {
    {"h100", "NVIDIA H100", 132, 80, 50},
    {"h200", "NVIDIA H200", 132, 141, 60},
    {"h20", "NVIDIA H20", 78, 96, 60},
    {"gh200", "NVIDIA GH200", 132, 96, 60},
};

enum { SMEM_OPT_IN_90 = 227 * 1024 };

dg_status dg_device_preset(const char *name, dg_device_info *info)
{
    operation_begin("dg_device_preset");
    if (name == NULL || info == NULL)
        return fail(DG_ERROR_INVALID_ARGUMENT, "%s is NULL", name == NULL ? "name" : "info");
    for (size_t i = 0; i < sizeof presets / sizeof *presets; ++i) {
        if (strcmp(name, presets[i].name) != 0)
            continue;
        dg_device_info filled = DG_DEVICE_INFO_INIT;
        snprintf(filled.name, sizeof filled.name, "%s", presets[i].full_name);
        filled.arch = 90;
        filled.num_sms = presets[i].num_sms;
        filled.memory_bytes = presets[i].memory_gb * 1000000000;
        filled.l2_bytes = presets[i].l2_mb << 20;
        filled.smem_bytes_per_block = SMEM_OPT_IN_90;
        return export_struct(info, &filled, sizeof filled, "dg_device_info");
    }
    return fail(DG_ERROR_INVALID_ARGUMENT, "name is \"%s\"; wanted h100, h200, h20 or gh200", name);
}

dg_status device_target(const dg_device_info *given, int32_t ordinal, dg_device_info *device)
{
    const struct cuda_device *own;
    if (given == NULL) {
        CHECK(cuda_device_get(ordinal, &own));
        *device = own->info;
        return DG_SUCCESS;
    }
    CHECK(import_args(device, sizeof *device, given, "dg_device_info"));
    device->name[sizeof device->name - 1] = '\0';
    if (device->arch > 0 && device->num_sms > 0 && device->smem_bytes_per_block > 0)
        return DG_SUCCESS;
    return fail(DG_ERROR_INVALID_ARGUMENT,
                "target has arch %d, num_sms %d, smem_bytes_per_block %d; all must be positive", (int)device->arch,
                (int)device->num_sms, (int)device->smem_bytes_per_block);
}
