#include "npy.h"

#include "number.h"
#include "program.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What the header's dictionary says: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } */
struct npy_header {
    char descr[16];
    bool fortran_order;
    int ndim;
    int64_t shape[2];
    size_t data_offset;
};

/* ---- The header -------------------------------------------------------------------------------------------------- */

/* The value after 'key': in the dictionary, or NULL. The text ends with a zero. */
static const char *find_value(const char *text, const char *key)
{
    char quoted[32];
    snprintf(quoted, sizeof(quoted), "'%s'", key);
    const char *found = strstr(text, quoted);
    if (found == NULL)
        return NULL;
    found += strlen(quoted);
    found += strspn(found, " ");
    if (*found++ != ':')
        return NULL;
    return found + strspn(found, " ");
}

static bool read_descr(const struct file *file, const char *text, struct npy_header *header)
{
    const char *value = find_value(text, "descr");
    if (value == NULL || (*value != '\'' && *value != '['))
        return trouble("%s: the .npy header names no type (descr)", file->path);
    if (*value == '[')
        return trouble("%s holds records with fields; a matrix of numbers is wanted", file->path);
    const size_t length = strcspn(value + 1, "'");
    if (length >= sizeof(header->descr) || value[1 + length] == 0)
        return trouble("%s: the .npy header's type (descr) is damaged", file->path);
    memcpy(header->descr, value + 1, length);
    header->descr[length] = 0;
    return true;
}

static bool read_order(const struct file *file, const char *text, struct npy_header *header)
{
    const char *value = find_value(text, "fortran_order");
    if (value && strncmp(value, "True", 4) == 0)
        header->fortran_order = true;
    else if (value == NULL || strncmp(value, "False", 5) != 0)
        return trouble("%s: the .npy header's fortran_order is neither True nor False", file->path);
    return true;
}

static bool read_shape(const struct file *file, const char *text, struct npy_header *header)
{
    const char *value = find_value(text, "shape");
    if (value == NULL || *value++ != '(')
        return trouble("%s: the .npy header has no shape", file->path);
    for (value += strspn(value, " "); *value != ')'; value += strspn(value, " ")) {
        char *end;
        errno = 0;
        const long long size = strtoll(value, &end, 10);
        if (end == value || errno || size < 0)
            return trouble("%s: the .npy header's shape is damaged", file->path);
        if (header->ndim == 2)
            return trouble("%s has more than two dimensions; a matrix is wanted", file->path);
        header->shape[header->ndim++] = size;
        value = end + strspn(end, " ");
        if (*value == ',')
            ++value;
        else if (*value != ')')
            return trouble("%s: the .npy header's shape is damaged", file->path);
    }
    if (header->ndim == 0)
        return trouble("%s holds a single number; a matrix is wanted", file->path);
    return true;
}

static bool read_header(const struct file *file, struct npy_header *header)
{
    const uint8_t *d = file->data;
    char text[4096]; /* NumPy's own limit is 10,000, reached only by records */
    if (file->bytes < 12 || memcmp(d, "\x93NUMPY", 6) != 0)
        return trouble("%s is not a .npy file: it does not begin with its magic", file->path);
    if (d[6] != 1 && d[6] != 2)
        return trouble("%s has .npy version %d.%d; 1.0 and 2.0 are known", file->path, d[6], d[7]);
    const size_t start = d[6] == 1 ? 10 : 12;
    const size_t length = d[6] == 1 ? d[8] + 256u * d[9] : d[8] + 256u * d[9] + 65536u * d[10] + ((size_t)d[11] << 24);
    if (length > file->bytes - start)
        return trouble("%s ends within its header", file->path);
    if (length >= sizeof(text))
        return trouble("%s has a header of %zu bytes; a matrix needs far less", file->path, length);
    memcpy(text, d + start, length);
    text[length] = 0;
    *header = (struct npy_header){.data_offset = start + length};
    return read_descr(file, text, header) && read_order(file, text, header) && read_shape(file, text, header);
}

/* ---- The data ---------------------------------------------------------------------------------------------------- */

static const struct npy_type {
    const char *descr;
    dg_dtype dtype; /* of the array that is made */
    size_t bytes;   /* of an element in the file */
} types[] = {
    {"<f4", DG_FLOAT32, 4},  {"<f2", DG_FLOAT16, 2},  {"<f8", DG_FLOAT32, 8},
    {"<V2", DG_BFLOAT16, 2}, {"|V2", DG_BFLOAT16, 2}, {"bfloat16", DG_BFLOAT16, 2},
};

static const struct npy_type *find_type(const char *descr)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); ++i)
        if (strcmp(types[i].descr, descr) == 0)
            return &types[i];
    return NULL;
}

static void copy_element(struct array *array, int64_t to, const uint8_t *from, size_t bytes)
{
    double wide;
    if (bytes == 8) {
        memcpy(&wide, from, 8);
        ((float *)array->data)[to] = (float)wide;
    } else {
        memcpy((uint8_t *)array->data + (size_t)to * bytes, from, bytes);
    }
}

static void copy_data(struct array *array, const uint8_t *from, const struct npy_type *type, bool fortran_order)
{
    const int64_t count = array_count(array);
    if (!fortran_order && type->bytes != 8) {
        memcpy(array->data, from, (size_t)count * type->bytes);
        return;
    }
    const int64_t row_step = fortran_order ? 1 : array->cols, col_step = fortran_order ? array->rows : 1;
    for (int64_t row = 0; row < array->rows; ++row)
        for (int64_t col = 0; col < array->cols; ++col)
            copy_element(array, row * array->cols + col, from + (size_t)(row * row_step + col * col_step) * type->bytes,
                         type->bytes);
}

bool npy_parse(const struct file *file, struct array *array)
{
    struct npy_header header;
    int64_t count;
    if (!read_header(file, &header))
        return false;
    const struct npy_type *type = find_type(header.descr);
    if (type == NULL)
        return trouble("%s holds elements of type '%s'; known are <f4 (float32), <f2 (float16), <f8 (float64) and <V2 "
                       "(bfloat16)",
                       file->path, header.descr);
    const int64_t rows = header.ndim == 2 ? header.shape[0] : 1, cols = header.shape[header.ndim - 1];
    const size_t held = (file->bytes - header.data_offset) / type->bytes;
    if (__builtin_mul_overflow(rows, cols, &count) || (uint64_t)count > held)
        return trouble("%s ends early: its shape (%" PRId64 ", %" PRId64 ") wants more than the %zu elements it holds",
                       file->path, rows, cols, held);
    if ((uint64_t)count * type->bytes != file->bytes - header.data_offset)
        return trouble("%s is longer than its shape (%" PRId64 ", %" PRId64 ") of '%s' says", file->path, rows, cols,
                       header.descr);
    if (!array_make(array, type->dtype, rows, cols))
        return false;
    copy_data(array, file->data + header.data_offset, type, header.fortran_order);
    return true;
}

bool npy_read(const char *path, struct array *array)
{
    struct file file;
    *array = (struct array){0};
    const bool done = file_open(path, &file) && npy_parse(&file, array);
    file_close(&file);
    return done;
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

/* Magic, version 1.0, the header's length, and the header, padded so that the data starts at a multiple of 64. */
static bool write_header(FILE *out, const struct array *array)
{
    char text[192];
    const int used = snprintf(text + 10, sizeof(text) - 10,
                              "{'descr': '%s', 'fortran_order': False, 'shape': (%" PRId64 ", %" PRId64 "), }",
                              array->dtype == DG_FLOAT16 ? "<f2" : "<f4", array->rows, array->cols);
    const size_t total = ((size_t)used + 11 + 63) / 64 * 64;
    static const char magic[8] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0};
    memcpy(text, magic, sizeof(magic));
    text[8] = (char)((total - 10) & 255);
    text[9] = (char)((total - 10) >> 8);
    memset(text + 10 + used, ' ', total - 10 - (size_t)used);
    text[total - 1] = '\n';
    return fwrite(text, 1, total, out) == total;
}

static bool write_data(FILE *out, const struct array *array)
{
    const size_t count = (size_t)array_count(array);
    if (array->dtype != DG_BFLOAT16)
        return fwrite(array->data, dg_dtype_size(array->dtype), count, out) == count;
    for (size_t i = 0; i < count; ++i) {
        const float value = number_read(DG_BFLOAT16, array->data, (int64_t)i);
        if (fwrite(&value, sizeof(value), 1, out) != 1)
            return false;
    }
    return true;
}

bool npy_writable(const char *path)
{
    char folder[4096];
    struct stat about;
    if (*path == 0)
        return trouble("the output has no name");
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
        return trouble("%s cannot be written: it is a directory", path);
    const char *slash = strrchr(path, '/');
    const int length = slash == NULL ? 1 : slash == path ? 1 : (int)(slash - path);
    snprintf(folder, sizeof(folder), "%.*s", length, slash ? path : ".");
    const bool there = access(path, F_OK) == 0;
    if (access(there ? path : folder, W_OK) != 0)
        return trouble("%s cannot be written: %s: %s", path, there ? path : folder, strerror(errno));
    return true;
}

bool npy_write(const char *path, const struct array *array)
{
    FILE *out = fopen(path, "wb");
    if (out == NULL)
        return trouble("%s: %s", path, strerror(errno));
    errno = 0;
    const bool written = write_header(out, array) && write_data(out, array);
    const bool closed = fclose(out) == 0;
    if (!written || !closed)
        return trouble("%s could not be written: %s", path, errno ? strerror(errno) : "short write");
    return true;
}
