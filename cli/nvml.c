#include "nvml.h"

#include "gpu.h"
#include "library.h"

enum { CLOCK_SM = 1 };

static struct {
    int (*nvmlInit_v2)(void);
    int (*nvmlDeviceGetHandleByPciBusId_v2)(const char *bus_id, void **device);
    int (*nvmlDeviceGetClockInfo)(void *device, int clock, unsigned *mhz);
} nvml;

static bool load(void)
{
    static const char *const names[] = {"libnvidia-ml.so.1", NULL};
    static bool tried, loaded;
    if (tried)
        return loaded;
    tried = true;
    void *library = library_open(names, "nvml");
    loaded =
        library && library_symbol(library, "nvmlInit_v2", (void *)&nvml.nvmlInit_v2) &&
        library_symbol(library, "nvmlDeviceGetHandleByPciBusId_v2", (void *)&nvml.nvmlDeviceGetHandleByPciBusId_v2) &&
        library_symbol(library, "nvmlDeviceGetClockInfo", (void *)&nvml.nvmlDeviceGetClockInfo) &&
        nvml.nvmlInit_v2() == 0;
    return loaded;
}

uint32_t nvml_sm_clock(int32_t device)
{
    char bus_id[32];
    void *handle;
    unsigned mhz = 0;
    if (!load() || !gpu_bus_id(device, bus_id, sizeof(bus_id)) ||
        nvml.nvmlDeviceGetHandleByPciBusId_v2(bus_id, &handle) != 0 ||
        nvml.nvmlDeviceGetClockInfo(handle, CLOCK_SM, &mhz) != 0)
        return 0;
    return mhz;
}
