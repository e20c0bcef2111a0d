/*
 * An NVRTC that is the host's C++ compiler: for DG_NVRTC_PATH, beside the fake driver. The "cubin" that it makes of a
 * kernel's text is a shared library, which the emulation loads. The headers come with the text, as for the real one;
 * the tests have put common/ptx.h and common/tma.h of the emulation in the place of the others.
 *
 * Environment:  EMU_CXX (c++) and EMU_CXXFLAGS (-O2 -g) are the compiler and its options;
 *               EMU_KERNELS (/tmp) is where each kernel gets a directory, which stays there for debuggers.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { OK = 0, COMPILATION = 6, MAX_HEADERS = 32, PATH = 4096 };

struct program {
    char *name, *text;
    int count;
    char *header_name[MAX_HEADERS], *header_text[MAX_HEADERS];
    char directory[PATH];
    char *log, *image;
    size_t image_bytes;
};

/* ---- Texts --------------------------------------------------------------------------------------------------- */

/*
 * wgmma.h for the host: the same functions, which pass their arguments on. The JIT's text has a line
 * "... void wgmma_m64n128k32_e4m3_rs(float *d, const uint32_t *a, uint64_t desc_b, int accumulate)" for each.
 */
static void write_wgmma(FILE *out, const char *text)
{
    int n, k;
    char type[8];
    fprintf(out, "#include \"common/ptx.h\"\n");
    for (const char *at = text; (at = strstr(at, "void wgmma_m64n")) != NULL; ++at) {
        if (sscanf(at, "void wgmma_m64n%dk%d_%4[a-z0-9]", &n, &k, type) != 3)
            continue;
        const char *bracket = strchr(at, '(');
        const int rs = strncmp(bracket - 3, "_rs", 3) == 0;
        const char *enumerator = strcmp(type, "e4m3") == 0   ? "EMU_E4M3"
                                 : strcmp(type, "bf16") == 0 ? "EMU_BF16"
                                                             : "EMU_TF32";
        fprintf(out, "DEVICE_FN void wgmma_m64n%dk%d_%s%s(float *d, %s a, uint64_t b, int accumulate)\n", n, k, type,
                rs ? "_rs" : "", rs ? "const uint32_t *" : "uint64_t");
        fprintf(out, "{\n    emu_wgmma%s(%s, %d, d, a, b, accumulate);\n}\n", rs ? "_rs" : "", enumerator, n);
    }
}

/* Every array in a line of a struct: a name with a bracket behind it. */
static void write_members(FILE *out, const char *line, size_t length)
{
    int depth = 0;
    size_t begin = 0;
    for (size_t i = 0; i < length && strncmp(line + i, "/*", 2) != 0; ++i) {
        if (line[i] == '[' && depth++ == 0 && i > begin && line[i - 1] != ']')
            fprintf(out, "    {\"%.*s\", MEMBER(%.*s)},\n", (int)(i - begin), line + begin, (int)(i - begin),
                    line + begin);
        if (line[i] == ']')
            --depth;
        if (depth == 0 && strchr(" ,;*]", line[i]))
            begin = i + 1;
    }
}

/* emu_fields: the members of `struct smem`, so that reports can name places in shared memory. */
static void write_fields(FILE *out, const char *text)
{
    const char *line = strstr(text, "\nstruct smem {\n");
    if (line == NULL)
        return;
    fprintf(out, "#define MEMBER(m) __builtin_offsetof(smem, m), sizeof(((smem *)0)->m), sizeof(((smem *)0)->m[0])\n"
                 "struct emu_field {\n    const char *name;\n    uint32_t offset, bytes, stride;\n};\n"
                 "EMU const emu_field emu_fields[];\nconst emu_field emu_fields[] = {\n");
    for (line = strchr(line + 1, '\n') + 1; strncmp(line, "};", 2) != 0; line = strchr(line, '\n') + 1) {
        const size_t length = strcspn(line, "\n");
        if (line[0] == '#')
            fprintf(out, "%.*s\n", (int)length, line);
        else
            write_members(out, line, length);
    }
    fprintf(out, "    {0, 0, 0, 0}};\n");
}

/* ---- Files --------------------------------------------------------------------------------------------------- */

static FILE *create(const struct program *p, const char *name)
{
    char path[PATH + 256];
    snprintf(path, sizeof path, "%s/%s", p->directory, name);
    return fopen(path, "w");
}

static int write_header(const struct program *p, int i)
{
    FILE *out = create(p, p->header_name[i]);
    if (out == NULL)
        return 0;
    if (strcmp(p->header_name[i], "wgmma.h") == 0)
        write_wgmma(out, p->header_text[i]);
    else
        fputs(p->header_text[i], out);
    return fclose(out) == 0;
}

static int write_files(const struct program *p)
{
    for (int i = 0; i < p->count; ++i)
        if (!write_header(p, i))
            return 0;
    FILE *out = create(p, p->name);
    if (out == NULL)
        return 0;
    fputs(p->text, out);
    write_fields(out, p->text);
    return fclose(out) == 0;
}

static char *read_file(const struct program *p, const char *name, size_t *bytes)
{
    char path[PATH + 256];
    char *data = NULL;
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", p->directory, name);
    FILE *in = fopen(path, "r");
    *bytes = 0;
    if (in && fstat(fileno(in), &info) == 0 && (data = calloc(1, (size_t)info.st_size + 1)) != NULL)
        *bytes = fread(data, 1, (size_t)info.st_size, in);
    if (in)
        fclose(in);
    return data;
}

static unsigned long long hash(unsigned long long h, const char *text)
{
    for (; *text; ++text)
        h = (h ^ (unsigned char)*text) * 0x100000001b3u; /* FNV-1a */
    return h;
}

static int make_directory(struct program *p)
{
    static const char *const folders[] = {"", "/common", "/shared"};
    const char *given = getenv("EMU_KERNELS"), *parent = given ? given : "/tmp";
    char path[PATH + 16];
    unsigned long long h = hash(0xcbf29ce484222325u, p->text);
    for (int i = 0; i < p->count; ++i)
        h = hash(h, p->header_text[i]);
    snprintf(p->directory, sizeof p->directory, "%.3000s/%.200s.%016llx", parent, p->name, h);
    mkdir(parent, 0777); /* it may be there */
    for (int i = 0; i < 3; ++i) {
        snprintf(path, sizeof path, "%s%s", p->directory, folders[i]);
        if (mkdir(path, 0777) != 0 && access(path, W_OK) != 0)
            return 0;
    }
    return 1;
}

/* ---- The compiler -------------------------------------------------------------------------------------------- */

/* 90 from "--gpu-architecture=sm_90a". */
static int arch_of(int count, const char *const *options)
{
    int arch = 0;
    for (int i = 0; i < count; ++i)
        if (strncmp(options[i], "--gpu-architecture=sm_", 22) == 0)
            arch = atoi(options[i] + 22);
    return arch;
}

static const char *environment(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

static int compile(struct program *p, int arch)
{
    char command[3 * PATH];
    size_t bytes;
    snprintf(command, sizeof command,
             "cd '%s' && %s -std=c++17 %s -Wall -Wextra -Wno-unknown-pragmas -Wno-unused-function -Wno-pass-failed "
             "-Wno-unknown-warning-option -fno-strict-aliasing -ffp-contract=off -fPIC -shared -fvisibility=hidden "
             "-D__CUDA_ARCH__=%d -I. -o kernel.so -x c++ '%s' >log 2>&1",
             p->directory, environment("EMU_CXX", "c++"), environment("EMU_CXXFLAGS", "-O2 -g"), arch * 10, p->name);
    const int status = system(command);
    p->log = read_file(p, "log", &bytes);
    if (status == 0)
        p->image = read_file(p, "kernel.so", &p->image_bytes);
    return p->image ? OK : COMPILATION;
}

/* ---- The functions of nvrtc.def ------------------------------------------------------------------------------ */

EXPORT int nvrtcVersion(int *major, int *minor);
int nvrtcVersion(int *major, int *minor)
{
    *major = 13;
    *minor = 0;
    return OK;
}

EXPORT const char *nvrtcGetErrorString(int result);
const char *nvrtcGetErrorString(int result)
{
    return result == OK ? "success" : "the host's compiler failed";
}

EXPORT int nvrtcCreateProgram(void **program, const char *text, const char *name, int count, const char *const *texts,
                              const char *const *names);
int nvrtcCreateProgram(void **program, const char *text, const char *name, int count, const char *const *texts,
                       const char *const *names)
{
    struct program *p = calloc(1, sizeof *p);
    if (p == NULL || count > MAX_HEADERS)
        return COMPILATION;
    p->text = strdup(text);
    p->name = strdup(name);
    p->count = count;
    for (int i = 0; i < count; ++i) {
        p->header_name[i] = strdup(names[i]);
        p->header_text[i] = strdup(texts[i]);
    }
    *program = p;
    return OK;
}

EXPORT int nvrtcCompileProgram(void *program, int count, const char *const *options);
int nvrtcCompileProgram(void *program, int count, const char *const *options)
{
    struct program *p = program;
    if (make_directory(p) && write_files(p))
        return compile(p, arch_of(count, options));
    p->log = strdup("no directory, or no file, for the kernel under EMU_KERNELS");
    return COMPILATION;
}

EXPORT int nvrtcDestroyProgram(void **program);
int nvrtcDestroyProgram(void **program)
{
    struct program *p = *program;
    for (int i = 0; i < p->count; ++i) {
        free(p->header_name[i]);
        free(p->header_text[i]);
    }
    free(p->name);
    free(p->text);
    free(p->log);
    free(p->image);
    free(p);
    *program = NULL;
    return OK;
}

EXPORT int nvrtcGetProgramLogSize(void *program, size_t *bytes);
int nvrtcGetProgramLogSize(void *program, size_t *bytes)
{
    const struct program *p = program;
    *bytes = strlen(p->log ? p->log : "") + 1;
    return OK;
}

EXPORT int nvrtcGetProgramLog(void *program, char *log);
int nvrtcGetProgramLog(void *program, char *log)
{
    const struct program *p = program;
    strcpy(log, p->log ? p->log : "");
    return OK;
}

EXPORT int nvrtcGetCUBINSize(void *program, size_t *bytes);
int nvrtcGetCUBINSize(void *program, size_t *bytes)
{
    *bytes = ((const struct program *)program)->image_bytes;
    return OK;
}

EXPORT int nvrtcGetCUBIN(void *program, char *cubin);
int nvrtcGetCUBIN(void *program, char *cubin)
{
    const struct program *p = program;
    memcpy(cubin, p->image, p->image_bytes);
    return OK;
}

EXPORT int nvrtcGetPTXSize(void *program, size_t *bytes);
int nvrtcGetPTXSize(void *program, size_t *bytes)
{
    (void)program;
    *bytes = 0;
    return OK;
}

EXPORT int nvrtcGetPTX(void *program, char *ptx);
int nvrtcGetPTX(void *program, char *ptx)
{
    (void)program, (void)ptx;
    return COMPILATION;
}
