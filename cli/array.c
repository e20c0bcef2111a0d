#include "array.h"

#include "number.h"
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool array_make(struct array *array, dg_dtype dtype, int64_t rows, int64_t cols)
{
    *array = (struct array){.dtype = dtype, .rows = rows, .cols = cols};
    array->data = get_memory((size_t)(rows * cols) * dg_dtype_size(dtype));
    return array->data != NULL;
}

void array_free(struct array *array)
{
    free(array->data);
    array->data = NULL;
}

bool array_finite(const char *name, const struct array *array)
{
    for (int64_t i = 0; i < array_count(array); ++i) {
        const float value = number_read(array->dtype, array->data, i);
        if (!isfinite(value))
            return trouble("%s holds %f at [%" PRId64 ", %" PRId64 "]: --check wants finite numbers", name,
                           (double)value, i / array->cols, i % array->cols);
    }
    return true;
}

static bool map_file(int handle, struct file *file)
{
    struct stat about;
    if (fstat(handle, &about) != 0)
        return trouble("%s: %s", file->path, strerror(errno));
    if (!S_ISREG(about.st_mode))
        return trouble("%s is not a regular file", file->path);
    file->bytes = (size_t)about.st_size;
    if (file->bytes == 0)
        return trouble("%s is empty", file->path);
    void *map = mmap(NULL, file->bytes, PROT_READ, MAP_PRIVATE, handle, 0);
    if (map == MAP_FAILED)
        return trouble("%s: %s", file->path, strerror(errno));
    file->data = map;
    return true;
}

bool file_open(const char *path, struct file *file)
{
    *file = (struct file){.path = path};
    const int handle = open(path, O_RDONLY | O_CLOEXEC);
    if (handle < 0)
        return trouble("%s: %s", path, strerror(errno));
    const bool done = map_file(handle, file);
    close(handle);
    return done;
}

void file_close(struct file *file)
{
    if (file->data)
        munmap((void *)(uintptr_t)file->data, file->bytes);
    file->data = NULL;
}
