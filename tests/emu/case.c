#include "tests/emu/case.h"

#include "core/hash.h"
#include "core/status.h"
#include "cpu/convert.h"
#include "tests/emu/mutate.h"
#include "tests/fake/fake.h"

#include <fnmatch.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { CANARY = 0xa5, PAGE = 4096 };

__attribute__((format(printf, 1, 2), noreturn)) static void broken(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vprintf(format, values);
    va_end(values);
    printf("\n");
    exit(CASE_BROKEN);
}

void case_ok(dg_status status)
{
    if (status != DG_SUCCESS)
        broken("%s: %s", dg_status_name(status), dg_last_error());
}

const char *case_read(const char *path)
{
    enum { MOST = 1 << 16 };
    FILE *in = fopen(path, "r");
    char *text = calloc(1, MOST);
    if (in == NULL || text == NULL)
        broken("%s cannot be read; run this in the root of the tree", path);
    if (fread(text, 1, MOST - 1, in) == MOST - 1)
        broken("%s is too long", path);
    fclose(in);
    return text;
}

/* What fake.h calls. */
void test_fail(const char *file, int line, const char *format, ...)
{
    va_list values;
    printf("%s:%d: ", file, line);
    va_start(values, format);
    vprintf(format, values);
    va_end(values);
    printf("\n");
    exit(CASE_BROKEN);
}

/* ---- Lines --------------------------------------------------------------------------------------------------- */

/* What follows `name` where a word begins with it, or NULL. */
static const char *find_word(const char *line, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = line; (at = strstr(at, name)) != NULL; ++at)
        if (at == line || at[-1] == ' ')
            return at + length;
    return NULL;
}

int64_t case_number(const char *line, const char *name, int64_t otherwise)
{
    char word[32];
    snprintf(word, sizeof word, "%s=", name);
    const char *value = find_word(line, word);
    return value ? strtoll(value, NULL, 10) : otherwise;
}

bool case_has(const char *line, const char *word)
{
    const char *end = find_word(line, word);
    while (end && *end != '\0' && *end != ' ')
        end = find_word(end, word);
    return end != NULL;
}

dg_dtype case_type(const char *line, const char *name)
{
    char word[32];
    snprintf(word, sizeof word, "%s=f32", name);
    if (case_has(line, word))
        return DG_FLOAT32;
    snprintf(word, sizeof word, "%s=f16", name);
    return case_has(line, word) ? DG_FLOAT16 : DG_BFLOAT16;
}

enum case_layout case_layout(const char *line, const char *name)
{
    char word[32];
    snprintf(word, sizeof word, "%s=cols", name);
    if (case_has(line, word))
        return LAYOUT_COLS;
    snprintf(word, sizeof word, "%s=spread", name);
    return case_has(line, word) ? LAYOUT_SPREAD : LAYOUT_ROWS;
}

/* ---- Random numbers ------------------------------------------------------------------------------------------ */

static uint64_t random_state = 1;

uint32_t case_random(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
    return (uint32_t)(random_state >> 32);
}

int64_t case_below(int64_t count)
{
    return (int64_t)(((uint64_t)case_random() * (uint64_t)count) >> 32);
}

float case_uniform(void)
{
    return (float)((double)case_random() / 2147483648.0 - 1.0);
}

/* ---- Memory -------------------------------------------------------------------------------------------------- */

/* The last byte, rounded up to what TMA must have aligned, lies before a page without access; so does the first. */
static uint8_t *fenced(size_t bytes)
{
    const size_t rounded = (bytes + 15) / 16 * 16, pages = (rounded + PAGE - 1) / PAGE * PAGE;
    uint8_t *memory = mmap(NULL, pages + 2 * (size_t)PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + PAGE, pages, PROT_READ | PROT_WRITE) != 0)
        broken("no memory for a tensor of %zu bytes", bytes);
    return memory + PAGE + pages - rounded;
}

enum { MAX_TENSORS = 8 };
static struct tensor tensors[MAX_TENSORS];
static int tensor_count;
static struct fake *gpu;

#define FOR_EACH_TENSOR(t) for (struct tensor *t = tensors; t < tensors + tensor_count; ++t)

struct tensor *tensor_make(const char *name, dg_dtype dtype, int64_t batch, int64_t rows, int64_t cols,
                           enum case_layout layout, int64_t align, int64_t extra)
{
    if (tensor_count == MAX_TENSORS)
        broken("a case with more than %d tensors", MAX_TENSORS);
    struct tensor *t = &tensors[tensor_count++];
    const int64_t element = (int64_t)dg_dtype_size(dtype), unit = layout == LAYOUT_SPREAD ? 2 : 1;
    const int64_t lines = layout == LAYOUT_COLS ? cols : rows, length = layout == LAYOUT_COLS ? rows : cols;
    const int64_t pitch = round_up(length * unit * element, align) / element + extra;
    const int64_t matrix = pitch * lines + (batch > 1 ? round_up(align, element) / element : 0);
    *t = (struct tensor){.name = name, .host = {.dtype = dtype, .device = DG_CPU, .ndim = batch ? 3 : 2}};
    const int32_t r = t->host.ndim - 2;
    t->host.shape[0] = batch;
    t->host.stride[0] = matrix;
    t->host.shape[r] = rows;
    t->host.shape[r + 1] = cols;
    t->host.stride[r] = layout == LAYOUT_COLS ? 1 : pitch;
    t->host.stride[r + 1] = layout == LAYOUT_COLS ? pitch : unit;
    t->bytes = (size_t)((batch ? batch : 1) * matrix * element);
    t->host_memory = malloc(t->bytes ? t->bytes : 1);
    t->device_memory = fenced(t->bytes);
    memset(t->host_memory, CANARY, t->bytes);
    t->host.data = t->host_memory;
    t->device = t->host;
    t->device.data = t->device_memory;
    t->device.device = 0;
    if (gpu)
        gpu->pointer_add(t->device_memory, t->bytes ? t->bytes : 1, CU_MEMORYTYPE_DEVICE, 0, 1);
    return t;
}

void *tensor_at(const struct tensor *t, int64_t batch, int64_t row, int64_t col)
{
    const int32_t r = t->host.ndim - 2;
    const int64_t index = (r ? batch * t->host.stride[0] : 0) + row * t->host.stride[r] + col * t->host.stride[r + 1];
    return t->host_memory + index * (int64_t)dg_dtype_size(t->host.dtype);
}

void tensor_set(const struct tensor *t, int64_t batch, int64_t row, int64_t col, float value)
{
    const uint16_t half = t->host.dtype == DG_FLOAT16 ? float_to_fp16(value) : float_to_bf16(value);
    const uint8_t code = float_to_e4m3(value);
    void *at = tensor_at(t, batch, row, col);
    if (t->host.dtype == DG_FLOAT32)
        memcpy(at, &value, sizeof value);
    else if (t->host.dtype == DG_FLOAT8_E4M3)
        memcpy(at, &code, sizeof code);
    else
        memcpy(at, &half, sizeof half);
}

/* ---- Comparing ----------------------------------------------------------------------------------------------- */

static float value_at(const struct tensor *t, const void *at)
{
    float value = 0;
    uint16_t bits;
    switch (t->host.dtype) {
    case DG_FLOAT32:
        memcpy(&value, at, sizeof value);
        return value;
    case DG_FLOAT16:
    case DG_BFLOAT16:
        memcpy(&bits, at, sizeof bits);
        return t->host.dtype == DG_FLOAT16 ? fp16_to_float(bits) : bf16_to_float(bits);
    case DG_FLOAT8_E4M3:
        return e4m3_to_float(*(const uint8_t *)at);
    default:
        return 0;
    }
}

static uint8_t *device_of(const struct tensor *t, const void *host)
{
    return t->device_memory + ((const uint8_t *)host - t->host_memory);
}

static void wrong_element(const struct tensor *t, const int64_t at[3], int64_t differ)
{
    const void *host = tensor_at(t, at[0], at[1], at[2]);
    uint32_t got = 0, wanted = 0;
    memcpy(&got, device_of(t, host), dg_dtype_size(t->host.dtype));
    memcpy(&wanted, host, dg_dtype_size(t->host.dtype));
    emu_wrong("%s[%lld][%lld][%lld] is %g (%#x), wanted %g (%#x); %lld elements differ", t->name, (long long)at[0],
              (long long)at[1], (long long)at[2], (double)value_at(t, device_of(t, host)), got,
              (double)value_at(t, host), wanted, (long long)differ);
}

/* Bytes that belong to no element must be what they were. */
static void compare_gaps(const struct tensor *t)
{
    for (size_t i = 0; i < t->bytes; ++i)
        if (t->host_memory[i] != t->device_memory[i])
            emu_wrong("byte %zu of %s, which belongs to no element, was %#x and is %#x", i, t->name, t->host_memory[i],
                      t->device_memory[i]);
}

/* Any NaN is as good as another. */
static void compare_bits(const struct tensor *t)
{
    const size_t element = dg_dtype_size(t->host.dtype);
    int64_t differ = 0, first[3] = {0, 0, 0};
    TENSOR_FOR_EACH(t, b, r, c)
    {
        void *host = tensor_at(t, b, r, c);
        if (isnan(value_at(t, host)) && isnan(value_at(t, device_of(t, host))))
            memcpy(host, device_of(t, host), element);
        if (memcmp(host, device_of(t, host), element) != 0 && differ++ == 0) {
            first[0] = b;
            first[1] = r;
            first[2] = c;
        }
    }
    if (differ > 0)
        wrong_element(t, first, differ);
    compare_gaps(t);
}

/* As a whole within the bound; no element by itself far off, 2^-6 of itself or of what is usual; NaN where NaN is
   wanted, and infinities. */
static void compare_within(const struct tensor *t)
{
    double xy = 0, xx = 0, yy = 0, count = 0;
    TENSOR_FOR_EACH(t, b, r, c)
    {
        const void *host = tensor_at(t, b, r, c);
        const double x = value_at(t, host), y = value_at(t, device_of(t, host));
        if (!isfinite(x) || !isfinite(y))
            continue;
        xy += x * y;
        xx += x * x;
        yy += y * y;
        ++count;
    }
    const double error = 1 - 2 * xy / (xx + yy), usual = sqrt(xx / count);
    if (count > 0 && !(error < t->within))
        emu_wrong("%s differs by %g, more than %g", t->name, error, t->within);
    TENSOR_FOR_EACH(t, b, r, c)
    {
        void *host = tensor_at(t, b, r, c);
        const double x = value_at(t, host), y = value_at(t, device_of(t, host));
        const bool near = fabs(x - y) <= 0x1p-6 * fmax(fabs(x), usual);
        if (!near && !(isnan(x) && isnan(y)) && x != y)
            wrong_element(t, (const int64_t[3]){b, r, c}, 1);
        memcpy(host, device_of(t, host), dg_dtype_size(t->host.dtype));
    }
    compare_gaps(t);
}

static void compare(const struct tensor *t)
{
    if (t->within > 0)
        compare_within(t);
    else if (!t->anything)
        compare_bits(t);
}

/* ---- Running ------------------------------------------------------------------------------------------------- */

static void check_words(const struct operation *operation, const char *line)
{
    char copy[256], *rest = copy;
    snprintf(copy, sizeof copy, "%s", line);
    strsep(&rest, " "); /* its name */
    for (char *word; operation->words && (word = strsep(&rest, " ")) != NULL;) {
        int i = 0;
        while (operation->words[i] && fnmatch(operation->words[i], word, 0) != 0)
            ++i;
        if (operation->words[i] == NULL)
            broken("\"%s\" means nothing in a case of %s", word, operation->name);
    }
}

static const struct operation *operation_of(const char *line)
{
    static const struct operation *const all[] = {&gemm_operation, &quantize_operation, &transform_operation,
                                                  &part_operation};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i)
        if (case_has(line, all[i]->name) && strncmp(line, all[i]->name, strlen(all[i]->name)) == 0) {
            check_words(all[i], line);
            return all[i];
        }
    broken("\"%s\" begins with the name of no operation", line);
}

static bool on_cuda; /* a real GPU, of which device_memory is the image */

static void open_fake_gpu(int arch)
{
    gpu = fake_open();
    gpu->execute = spoil_run;
    gpu->devices[0].major = arch / 10;
    gpu->devices[0].minor = arch % 10;
}

static void open_gpu(const char *line)
{
    if (!on_cuda)
        open_fake_gpu((int)case_number(line, "arch", 90));
    emu_settings.hopper_fp8 = case_has(line, "hopper");
    case_ok(dg_set(NULL, DG_SETTING_PDL, case_has(line, "pdl")));
    case_ok(dg_set(NULL, DG_SETTING_NUM_SMS, case_number(line, "sms", 0)));
}

/* The suite says by EMU_KERNEL which kernel the case is for. */
static void check_kernel(void)
{
    const char *wanted = getenv("EMU_KERNEL");
    if (wanted && strcmp(wanted, gpu->launches[0].kernel) != 0)
        broken("the case is one of %s, but %s was launched", wanted, gpu->launches[0].kernel);
}

static void upload(struct tensor *t)
{
    memcpy(t->device_memory, t->host_memory, t->bytes);
    t->before = malloc(t->bytes ? t->bytes : 1);
    memcpy(t->before, t->host_memory, t->bytes);
    if (on_cuda) {
        case_ok(dg_alloc(0, t->bytes, &t->device.data));
        case_ok(dg_copy(t->device.data, 0, t->host_memory, DG_CPU, t->bytes, NULL));
    } else {
        emu_memory(t->device_memory, t->bytes, t->output);
    }
}

static void begin_case(const struct operation *operation, const char *line)
{
    open_gpu(line);
    operation->prepare(line);
    FOR_EACH_TENSOR(t)
    upload(t);
    case_ok(operation->run(line, false));
}

static void end_case(void)
{
    FOR_EACH_TENSOR(t)
    {
        free(t->host_memory);
        free(t->before);
    }
    tensor_count = 0;
}

void case_run(const char *line, uint64_t first_seed, int seeds)
{
    const struct operation *operation = operation_of(line);
    begin_case(operation, line);
    for (int i = 0; i < seeds; ++i) {
        emu_begin(first_seed + (uint64_t)i);
        FOR_EACH_TENSOR(t)
        memcpy(t->device_memory, t->before, t->bytes);
        case_ok(operation->run(line, true));
        FOR_EACH_TENSOR(t)
        compare(t);
    }
    check_kernel();
    end_case();
}

void case_digest(const char *line, bool cuda)
{
    const struct operation *operation = operation_of(line);
    struct hash128 hash = hash128_begin();
    on_cuda = cuda;
    begin_case(operation, line);
    emu_begin(1);
    case_ok(operation->run(line, true));
    FOR_EACH_TENSOR(t)
    {
        if (on_cuda)
            case_ok(dg_copy(t->device_memory, DG_CPU, t->device.data, 0, t->bytes, NULL));
        compare(t);
        if (t->output)
            hash128_add(&hash, t->device_memory, t->bytes);
    }
    printf("%016llx%016llx  %s\n", (unsigned long long)hash.high, (unsigned long long)hash.low, line);
    end_case();
}
