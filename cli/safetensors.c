#include "safetensors.h"

#include "program.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#ifdef HAVE_CJSON

#include <cjson/cJSON.h>

static const struct {
    const char *name;
    dg_dtype dtype;
} types[] = {{"F32", DG_FLOAT32}, {"F16", DG_FLOAT16}, {"BF16", DG_BFLOAT16}, {"F8_E4M3", DG_FLOAT8_E4M3}};

/* Where a tensor lies, as the header tells and checked against the file. */
struct entry {
    dg_dtype dtype;
    int64_t rows, cols;
    size_t begin; /* in the file */
};

/* JSON numbers arrive as doubles; a size must be a whole one that a double holds exactly. */
static bool whole_number(const cJSON *item, int64_t *value)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) || item->valuedouble > 0x1p53)
        return false;
    *value = (int64_t)item->valuedouble;
    return (double)*value == item->valuedouble;
}

static bool read_type(const struct file *file, const char *name, const cJSON *item, struct entry *entry)
{
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(item, "dtype");
    if (!cJSON_IsString(dtype))
        return trouble("%s: tensor %s has no dtype", file->path, name);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); ++i) {
        if (strcmp(types[i].name, dtype->valuestring) == 0) {
            entry->dtype = types[i].dtype;
            return true;
        }
    }
    return trouble("%s: tensor %s is of type %.20s; known are F32, F16, BF16 and F8_E4M3", file->path, name,
                   dtype->valuestring);
}

static bool read_shape(const struct file *file, const char *name, const cJSON *item, struct entry *entry)
{
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(item, "shape");
    if (!cJSON_IsArray(shape) || cJSON_GetArraySize(shape) != 2)
        return trouble("%s: tensor %s is no matrix: its shape does not have two sizes", file->path, name);
    if (!whole_number(cJSON_GetArrayItem(shape, 0), &entry->rows) ||
        !whole_number(cJSON_GetArrayItem(shape, 1), &entry->cols))
        return trouble("%s: the shape of tensor %s is damaged", file->path, name);
    return true;
}

static bool read_offsets(const struct file *file, size_t data_start, const char *name, const cJSON *item,
                         struct entry *entry)
{
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(item, "data_offsets");
    int64_t begin, end, bytes;
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 ||
        !whole_number(cJSON_GetArrayItem(offsets, 0), &begin) || !whole_number(cJSON_GetArrayItem(offsets, 1), &end) ||
        begin > end)
        return trouble("%s: the data_offsets of tensor %s are damaged", file->path, name);
    if ((uint64_t)end > file->bytes - data_start)
        return trouble("%s ends early: tensor %s reaches to byte %" PRId64 " of the %zu bytes of data", file->path,
                       name, end, file->bytes - data_start);
    if (__builtin_mul_overflow(entry->rows, entry->cols, &bytes) ||
        __builtin_mul_overflow(bytes, (int64_t)dg_dtype_size(entry->dtype), &bytes) || bytes != end - begin)
        return trouble("%s: tensor %s is [%" PRId64 ", %" PRId64 "] %s but has %" PRId64 " bytes of data", file->path,
                       name, entry->rows, entry->cols, dg_dtype_name(entry->dtype), end - begin);
    entry->begin = data_start + (size_t)begin;
    return true;
}

static bool find_entry(const struct file *file, const cJSON *header, size_t data_start, const char *name,
                       struct entry *entry)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(header, name);
    if (item == NULL)
        return trouble("%s has no tensor %s (it has %d entries%s%.80s)", file->path, name, cJSON_GetArraySize(header),
                       header->child ? ", the first is " : "",
                       header->child && header->child->string ? header->child->string : "");
    return read_type(file, name, item, entry) && read_shape(file, name, item, entry) &&
           read_offsets(file, data_start, name, item, entry);
}

/* The header's length and that it lies within the file; the format's own limit is 100 MB. */
static bool header_bytes(const struct file *file, size_t *bytes)
{
    uint64_t length = 0;
    if (file->bytes < 10)
        return trouble("%s is too short for a .safetensors file", file->path);
    for (int i = 7; i >= 0; --i)
        length = length << 8 | file->data[i];
    if (length > 100000000 || length > file->bytes - 8)
        return trouble("%s is not a .safetensors file, or is cut short: its header would have %" PRIu64 " bytes",
                       file->path, length);
    *bytes = (size_t)length;
    return true;
}

bool safetensors_parse(const struct file *file, const char *name, struct array *array)
{
    struct entry entry;
    size_t length;
    if (!header_bytes(file, &length))
        return false;
    cJSON *header = cJSON_ParseWithLength((const char *)file->data + 8, length);
    if (!cJSON_IsObject(header)) {
        cJSON_Delete(header);
        return trouble("%s: the .safetensors header is not a JSON object", file->path);
    }
    const bool found = find_entry(file, header, 8 + length, name, &entry);
    cJSON_Delete(header);
    if (!found || !array_make(array, entry.dtype, entry.rows, entry.cols))
        return false;
    memcpy(array->data, file->data + entry.begin, (size_t)array_count(array) * dg_dtype_size(entry.dtype));
    return true;
}

#else

bool safetensors_parse(const struct file *file, const char *name, struct array *array)
{
    (void)name;
    (void)array;
    return trouble("%s: this program was built without cJSON, which .safetensors files need; install libcjson-dev (or "
                   "your system's cJSON package) and run make again",
                   file->path);
}

#endif

bool safetensors_read(const char *path, const char *name, struct array *array)
{
    struct file file;
    *array = (struct array){0};
    const bool done = file_open(path, &file) && safetensors_parse(&file, name, array);
    file_close(&file);
    return done;
}
