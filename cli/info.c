/* `deepgemm info`: what is here, and what the library would do with a case. */
#include "parallel.h"
#include "problem.h"
#include "program.h"

#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help_text[] =
    "Usage: deepgemm info [--plan CASE [--target TARGET | --device cpu|cuda[:N]]]\n\n"
    "Without options: the library's version, the CPU, the CUDA driver and devices, the compiler for kernels (NVRTC),\n"
    "the kernels' packs and cache; what is missing is told with the library's reason.\n\n"
    "  --plan CASE      what dg_gemm would do with the case: the implementation, its configuration, the workspace,\n"
    "                   the fastest scale layouts, and why better implementations were passed over\n"
    "  --target TARGET  plan for h100, h200, h20, gh200, or a description such as arch=90,sms=132,l2=50,smem=227,\n"
    "                   instead of the device here (l2 in MiB, smem in KiB, memory in GiB)\n"
    "  --device DEVICE  plan for cpu, cuda or cuda:N; otherwise the first GPU, or the CPU where there is none\n"
    "  -h, --help       this text\n\n"
    "`deepgemm help cases` tells how a case is written.\n";

/* ---- The machine ------------------------------------------------------------------------------------------------- */

/* The value of the first "name : value" line of /proc/cpuinfo. */
static bool cpu_line(const char *name, char *value, size_t bytes)
{
    char line[8192];
    bool found = false;
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && !found && fgets(line, sizeof(line), file)) {
        const char *colon = strchr(line, ':');
        if (colon == NULL || strncmp(line, name, strlen(name)) != 0)
            continue;
        snprintf(value, bytes, "%s", colon + 1 + strspn(colon + 1, " "));
        value[strcspn(value, "\n")] = 0;
        found = true;
    }
    if (file)
        fclose(file);
    return found;
}

static void print_cpu(void)
{
    static const char *const interesting[] = {"avx2",        "f16c",        "fma",      "avx512f",  "avx512bw",
                                              "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"};
    char model[256] = "unknown", flags[8192] = "";
    cpu_line("model name", model, sizeof(model));
    cpu_line("flags", flags, sizeof(flags));
    printf("CPU          %s, %d threads\n", model, cpu_count());
    printf("             ");
    for (size_t i = 0; i < sizeof(interesting) / sizeof(interesting[0]); ++i) {
        const char *found = strstr(flags, interesting[i]);
        const size_t length = strlen(interesting[i]);
        while (found && found[length] != ' ' && found[length] != 0)
            found = strstr(found + 1, interesting[i]);
        if (found)
            printf("%s ", interesting[i]);
    }
    printf("\n");
}

static void print_devices(void)
{
    int32_t count = 0;
    if (dg_device_count(&count) != DG_SUCCESS) {
        printf("CUDA         none: %s\n", dg_last_error());
        return;
    }
    if (count == 0)
        printf("CUDA         the driver is here, but no device\n");
    for (int32_t i = 0; i < count; ++i) {
        dg_device_info info = DG_DEVICE_INFO_INIT;
        if (dg_device_query(i, &info) != DG_SUCCESS) {
            printf("cuda:%-7d %s\n", (int)i, dg_last_error());
            continue;
        }
        if (i == 0)
            printf("CUDA driver  %d.%d\n", info.driver_version / 1000, info.driver_version % 1000 / 10);
        printf("cuda:%-7d %s, compute capability %d.%d, %d SMs, %.1f GiB, L2 %.0f MiB, shared memory %d KiB a block\n",
               (int)i, info.name, info.arch / 10, info.arch % 10, info.num_sms, (double)info.memory_bytes / (1 << 30),
               (double)info.l2_bytes / (1 << 20), info.smem_bytes_per_block >> 10);
    }
}

static void print_compiler(void)
{
    int32_t version = 0;
    char path[PATH_MAX] = "";
    if (dg_compiler_query(&version, path, sizeof(path)) == DG_SUCCESS)
        printf("NVRTC        %d.%d, %s\n", version / 1000, version % 1000 / 10, path);
    else
        printf("NVRTC        none: %s\n", dg_last_error());
}

static int64_t cache_files, cache_bytes;

static int count_file(const char *path, const struct stat *about, int type, struct FTW *where)
{
    (void)path;
    (void)where;
    if (type == FTW_F) {
        ++cache_files;
        cache_bytes += about->st_size;
    }
    return 0;
}

/* Whether files can be made in the folder, or the folder itself in the nearest one above that exists. */
static bool can_grow(const char *folder)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s", folder);
    for (char *slash; access(path, F_OK) != 0; *slash = 0) {
        slash = strrchr(path, '/');
        if (slash == NULL || slash == path)
            return access(slash ? "/" : ".", W_OK | X_OK) == 0;
    }
    return access(path, W_OK | X_OK) == 0;
}

static void print_cache(void)
{
    char directory[PATH_MAX] = "";
    if (dg_cache_directory(directory, sizeof(directory)) != DG_SUCCESS || *directory == 0) {
        printf("cache        none, kernels are kept in memory: %s\n", dg_last_error());
        return;
    }
    nftw(directory, count_file, 16, FTW_PHYS);
    printf("cache        %s, %" PRId64 " KiB in %" PRId64 " files%s\n", directory, (cache_bytes + 1023) / 1024,
           cache_files, can_grow(directory) ? "" : "; not writable: new kernels are kept in memory only");
}

static void print_packs(void)
{
    char path[PATH_MAX];
    for (const char *rest = getenv("DG_PACK"); rest; rest = strchr(rest, ':')) {
        int64_t kernels = 0, bytes = 0;
        rest += *rest == ':';
        snprintf(path, sizeof(path), "%.*s", (int)strcspn(rest, ":"), rest);
        if (*path == 0)
            continue;
        const bool sound = dg_pack_query(path, &kernels, &bytes) == DG_SUCCESS;
        if (sound || kernels > 0)
            printf("pack         %s, %" PRId64 " kernels, %" PRId64 " KiB%s%s\n", path, kernels, (bytes + 1023) / 1024,
                   sound ? "" : "; ", sound ? "" : dg_last_error());
        else
            printf("pack         none: %s\n", dg_last_error());
    }
}

/* ---- A plan ------------------------------------------------------------------------------------------------------ */

static void print_layout(const char *name, const dg_tensor *t)
{
    printf("%-12s %s [", name, dg_dtype_name(t->dtype));
    for (int i = 0; i < t->ndim; ++i)
        printf("%s%" PRId64, i ? ", " : "", t->shape[i]);
    printf("] strides [");
    for (int i = 0; i < t->ndim; ++i)
        printf("%s%" PRId64, i ? ", " : "", t->stride[i]);
    printf("]\n");
}

static void print_plan(const char *name, const dg_explanation *plan)
{
    printf("case         %s\n", name);
    printf("row          %s\n", plan->row);
    if (*plan->config)
        printf("config       %s\n", plan->config);
    printf("workspace    %zu bytes\n", plan->workspace_bytes);
    print_layout("sfa layout", &plan->sfa_layout);
    print_layout("sfb layout", &plan->sfb_layout);
    for (const char *line = plan->refused; *line;) {
        const size_t length = strcspn(line, "\n");
        printf("%-12s %.*s\n", line == plan->refused ? "passed over" : "", (int)length, line);
        line += length + (line[length] == '\n');
    }
}

static int explain(const char *text, const char *target_text, const char *device_text)
{
    struct test_case test;
    struct gemm gemm;
    dg_device_info target;
    dg_explanation plan = {.size = sizeof(plan)};
    char name[CASE_NAME_BYTES];
    int32_t device = 0; /* with a target no device is touched, but the tensors must name one */
    if (!case_parse(text, &test))
        return fail_usage("%s", trouble_text());
    if (test.op != CASE_GEMM)
        return fail_usage("--plan wants a gemm case");
    if (target_text && !parse_target(target_text, &target))
        return fail_usage("%s", trouble_text());
    if (target_text == NULL && !parse_device(device_text, &device))
        return fail_usage("%s", trouble_text());
    if (!gemm_describe(&gemm, &test, device))
        return fail_check();
    const dg_gemm_args args = gemm_args(&gemm);
    if (!ok(dg_gemm_explain(NULL, &args, target_text ? &target : NULL, &plan)))
        return fail_check();
    case_print(&test, name);
    printf("device       %s\n", target_text ? target.name : device_name(device));
    print_plan(name, &plan);
    return EXIT_PASS;
}

static int run(int argc, char **argv)
{
    enum { PLAN = OPTION_LONG, TARGET, DEVICE };
    static const struct option options[] = {HELP_OPTION,
                                            {"plan", required_argument, NULL, PLAN},
                                            {"target", required_argument, NULL, TARGET},
                                            {"device", required_argument, NULL, DEVICE},
                                            {0}};
    const char *plan = NULL, *target = NULL, *device = NULL;
    int leave = EXIT_PASS;
    for (int option; (option = next_option(argc, argv, options, &leave)) != -1;) {
        if (option == OPTION_DONE)
            return leave;
        const char **text = option == PLAN ? &plan : option == TARGET ? &target : &device;
        if (*text)
            return fail_usage("--plan, --target and --device come once each");
        *text = optarg;
    }
    if (optind < argc)
        return fail_usage("info takes no argument \"%s\"; a case comes quoted after --plan", argv[optind]);
    if (target && device)
        return fail_usage("--target and --device exclude each other");
    if (plan)
        return explain(plan, target, device ? device : "auto");
    if (target || device)
        return fail_usage("%s goes with --plan", target ? "--target" : "--device");
    printf("deepgemm     %s\n", dg_version());
    print_cpu();
    print_devices();
    print_compiler();
    print_packs();
    print_cache();
    return EXIT_PASS;
}

const struct command command_info = {"info", "the machine, the devices, the compiler, and what a case would run on",
                                     help_text, run};
