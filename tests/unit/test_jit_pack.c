/* Packs of kernels: found without a compiler, never wrong under damage, and what may stand in their way. */
#include "tests/unit/jit/scene.h"

#include "jit/pack.h"
#include "jit/pack_file.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

enum { KERNELS = 5, THREADS = 8, CUBIN_BYTES = 200 };

static void remove_compiler(void)
{
    setenv("DG_NVRTC_PATH", "/nowhere", 1);
    setenv("DG_JIT_CACHE_DIR", "/proc/nowhere", 1);
}

static struct jit_request numbered(int i)
{
    static char configs[KERNELS + 1][32];
    struct jit_request request = scene_request();
    snprintf(configs[i], sizeof configs[i], "#define VALUE %d\n", i);
    request.config = configs[i];
    return request;
}

static struct hash128 key_of(int i)
{
    const struct jit_request request = numbered(i);
    struct jit_unit unit;
    EXPECT_OK(jit_unit_make(&request, &unit));
    jit_unit_free(&unit);
    return unit.key;
}

/* What stands for the cubin of kernel i: of an odd size, so that entries do not end at multiples of 64. */
static struct jit_cubin stand_in(int i, int32_t compiler)
{
    static unsigned char images[KERNELS][CUBIN_BYTES];
    memset(images[i], 'a' + i, sizeof images[i]);
    return (struct jit_cubin){images[i], CUBIN_BYTES - 3u - (size_t)i, key_of(i), compiler, 0};
}

/* A pack of the kernels first..last, made in a child, so that this process stays without one. */
struct making {
    const char *path;
    int first, last;
    int32_t compiler;
};

static void make_body(void *argument)
{
    const struct making *making = argument;
    struct jit_cubin cubins[KERNELS];
    const int count = making->last - making->first + 1;
    for (int i = 0; i < count; ++i)
        cubins[i] = stand_in(making->first + i, making->compiler);
    if (pack_add(making->path, 90, cubins, (size_t)count) != DG_SUCCESS)
        _exit(1);
}

static const char *make_pack(const char *name, int first, int last, int32_t compiler)
{
    struct making making = {scene_path(name), first, last, compiler};
    scene_wait(scene_fork(make_body, &making));
    return making.path;
}

static bool is_stand_in(const struct outcome *outcome, int i)
{
    const struct jit_cubin cubin = stand_in(i, 13000);
    struct hash128 hash = hash128_begin();
    hash128_add(&hash, cubin.image, cubin.bytes);
    return outcome->status == DG_SUCCESS && hash128_compare(outcome->image, hash) == 0;
}

static int count_files(void)
{
    const struct dirent *entry;
    DIR *list = opendir(scene_root);
    int count = 0;
    EXPECT(list != NULL);
    while ((entry = readdir(list)))
        count += entry->d_name[0] != '.';
    closedir(list);
    return count;
}

static int count_text(const char *part)
{
    size_t bytes;
    char *text = (char *)scene_read(scene_path("stderr"), &bytes);
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)); ++at)
        ++count;
    free(text);
    return count;
}

/* ---- Hits and misses --------------------------------------------------------------------------------------------- */

static void pack_compiled(void *argument)
{
    const struct jit_request request = scene_request();
    struct jit_cubin cubin;
    if (jit_get(&request, true, &cubin, NULL) != DG_SUCCESS || pack_add(argument, 90, &cubin, 1) != DG_SUCCESS)
        _exit(1);
}

TEST(a_pack_alone_serves_without_compiler_and_cache)
{
    char path[SCENE_PATH * 2];
    struct outcome compiled, packed;
    scene_begin();
    snprintf(path, sizeof path, "%s", scene_path("kernels.pack"));
    compiled = scene_get(scene_request());
    EXPECT_ORIGIN(compiled, JIT_COMPILED);
    scene_wait(scene_fork(pack_compiled, path));
    setenv("DG_PACK", path, 1);
    packed = scene_get(scene_request());
    EXPECT_ORIGIN(packed, JIT_FROM_PACK); /* before the cache, which has it too */
    EXPECT(packed.bytes == compiled.bytes && hash128_compare(packed.image, compiled.image) == 0);
    remove_compiler();
    EXPECT_ORIGIN(scene_get(scene_request()), JIT_FROM_PACK);
    EXPECT_ORIGIN(scene_run((struct get_job){.request = scene_request(), .may_compile = false}), JIT_FROM_PACK);
}

TEST(what_a_pack_lacks_is_told_where_nothing_else_has_it)
{
    struct outcome outcome;
    scene_begin();
    remove_compiler();
    setenv("DG_PACK", make_pack("a.pack", 0, 1, 13000), 1);
    outcome = scene_get(numbered(2));
    EXPECT_INT(outcome.status, DG_ERROR_NO_COMPILER);
    EXPECT_TEXT(outcome.message, "no pack in DG_PACK has a sound kernel test_kernel");
    outcome = scene_run((struct get_job){.request = numbered(2), .may_compile = false});
    EXPECT_INT(outcome.status, DG_ERROR_COMPILE_FORBIDDEN);
    EXPECT_TEXT(outcome.message, "is in no pack of DG_PACK, in no cache");
}

TEST(another_text_of_a_kernel_is_not_served)
{
    struct outcome outcome;
    scene_begin();
    remove_compiler();
    setenv("DG_PACK", make_pack("a.pack", 0, 4, 13000), 1);
    outcome = scene_get(numbered(0));
    EXPECT(is_stand_in(&outcome, 0));
    sources_replace("test_kernel", "extern \"C\" __global__ void test_kernel(float *x) { x[0] = 1; } /* newer */\n");
    EXPECT_INT(scene_get(numbered(0)).status, DG_ERROR_NO_COMPILER);
    sources_replace("test_kernel", SCENE_KERNEL);
    setenv("DG_JIT_WITH_LINEINFO", "1", 1); /* other options */
    EXPECT_INT(scene_get(numbered(0)).status, DG_ERROR_NO_COMPILER);
}

TEST(of_several_packs_the_first_that_has_a_kernel_serves)
{
    char list[SCENE_PATH * 8];
    struct outcome outcome;
    scene_begin();
    remove_compiler();
    snprintf(list, sizeof list, "::%s:/no/such:", make_pack("a.pack", 0, 1, 13000));
    snprintf(list + strlen(list), sizeof list - strlen(list), "%s:", make_pack("b.pack", 1, 3, 13000));
    setenv("DG_PACK", list, 1);
    for (int i = 0; i < 4; ++i) {
        outcome = scene_get(numbered(i));
        EXPECT_THAT(is_stand_in(&outcome, i), "kernel %d: %s", i, outcome.message);
        EXPECT_ORIGIN(outcome, JIT_FROM_PACK);
    }
    EXPECT_INT(scene_get(numbered(4)).status, DG_ERROR_NO_COMPILER);
}

static int32_t found_compiler(int32_t driver_major)
{
    struct jit_request request = numbered(0);
    struct jit_unit unit;
    struct cache_entry entry;
    request.driver_major = driver_major;
    EXPECT_OK(jit_unit_make(&request, &unit));
    const bool found = pack_find(&unit, &entry);
    jit_unit_free(&unit);
    return found ? entry.compiler : 0;
}

TEST(of_several_packs_one_that_the_driver_can_read_serves)
{
    char list[SCENE_PATH * 8];
    scene_begin();
    snprintf(list, sizeof list, "%s:", make_pack("13.pack", 0, 0, 13000));
    snprintf(list + strlen(list), sizeof list - strlen(list), "%s", make_pack("12.pack", 0, 0, 12090));
    setenv("DG_PACK", list, 1);
    EXPECT_INT(found_compiler(0), 13000);
    EXPECT_INT(found_compiler(12), 12090);
    EXPECT_INT(found_compiler(13), 13000);
    EXPECT_INT(found_compiler(11), 0); /* none: the cache or a compiler may have one */
    snprintf(list, sizeof list, "%s:", make_pack("old.pack", 0, 0, 12040));
    snprintf(list + strlen(list), sizeof list - strlen(list), "%s", make_pack("new.pack", 0, 0, 13000));
    setenv("DG_PACK", list, 1);
    EXPECT_INT(found_compiler(0), 13000); /* the better one, though it comes later */
    EXPECT_INT(found_compiler(12), 12040);
}

TEST(a_kernel_that_the_compiler_at_hand_makes_better_is_compiled)
{
    struct jit_request request = numbered(0);
    scene_begin();
    setenv("DG_PACK", make_pack("old.pack", 0, 0, 12040), 1);
    EXPECT_ORIGIN(scene_run((struct get_job){.request = request, .may_compile = false}), JIT_FROM_PACK);
    EXPECT_ORIGIN(scene_get(request), JIT_COMPILED);
    EXPECT_ORIGIN(scene_get(request), JIT_FROM_DISK);
    remove_compiler();
    EXPECT_ORIGIN(scene_get(request), JIT_FROM_PACK);
}

static void replace_and_use(void *argument)
{
    const struct jit_request requests[] = {numbered(0), numbered(1)};
    struct jit_cubin cubins[2];
    if (jit_get(&requests[0], false, &cubins[0], NULL) != DG_SUCCESS)
        _exit(1);
    const struct jit_cubin other = stand_in(4, 13000);
    if (pack_add(argument, 90, &other, 1) != DG_SUCCESS || unlink(argument) != 0 ||
        jit_get(&requests[1], false, &cubins[1], NULL) != DG_SUCCESS)
        _exit(1);
    for (int i = 0; i < 2; ++i)
        if (memcmp(cubins[i].image, stand_in(i, 0).image, cubins[i].bytes) != 0)
            _exit(1);
}

TEST(a_pack_may_be_replaced_and_removed_while_it_is_used)
{
    char path[SCENE_PATH * 2];
    scene_begin();
    remove_compiler();
    snprintf(path, sizeof path, "%s", make_pack("a.pack", 0, 1, 13000));
    setenv("DG_PACK", path, 1);
    scene_wait(scene_fork(replace_and_use, path));
}

/* ---- Damage ------------------------------------------------------------------------------------------------------ */

/* How many of the pack's kernels are handed out; each must be right. -1 when the file is refused. */
static int read_pack(const char *path)
{
    struct pack pack;
    int found = 0;
    if (pack_open(path, &pack))
        return -1;
    for (int i = 0; i < KERNELS; ++i) {
        const struct jit_cubin wanted = stand_in(i, 13000);
        const struct pack_place *place = pack_search(&pack, wanted.key);
        struct pack_item item;
        if (!place || !pack_item_read(&pack, place, path, &item))
            continue;
        EXPECT(item.header.payload_bytes == wanted.bytes && item.header.compiler == 13000 && item.header.arch == 90);
        EXPECT(memcmp(item.image, wanted.image, wanted.bytes) == 0);
        ++found;
    }
    pack_close(&pack);
    return found;
}

/* As scene_write, but many times a second: some file systems flush what replaces a truncated file's contents. */
static void rewrite(const char *path, const void *data, size_t bytes)
{
    EXPECT(unlink(path) == 0);
    scene_write(path, data, bytes);
}

static bool is_padding(const unsigned char *file, size_t at)
{
    const struct pack_place *index = (const void *)(file + 40);
    if (at < 40 + KERNELS * sizeof *index)
        return false;
    for (int i = 0; i < KERNELS; ++i)
        if (at >= index[i].offset && at < index[i].offset + index[i].bytes)
            return false;
    return true;
}

TEST(no_byte_of_a_pack_can_change_unnoticed)
{
    const size_t index_end = 40 + KERNELS * sizeof(struct pack_place);
    char path[SCENE_PATH * 2];
    unsigned char *file;
    size_t bytes;
    scene_begin();
    snprintf(path, sizeof path, "%s", make_pack("a.pack", 0, KERNELS - 1, 13000));
    file = scene_read(path, &bytes);
    EXPECT_INT(read_pack(path), KERNELS);
    for (size_t i = 0; i < bytes; ++i) {
        const int wanted = i < index_end ? -1 : is_padding(file, i) ? KERNELS : KERNELS - 1;
        file[i] ^= (unsigned char)(1u << i % 8);
        rewrite(path, file, bytes);
        EXPECT_THAT(read_pack(path) == wanted, "byte %zu changed: %d kernels, wanted %d", i, read_pack(path), wanted);
        file[i] ^= (unsigned char)(1u << i % 8);
    }
    for (size_t length = 0; length < bytes; ++length) {
        rewrite(path, file, length);
        EXPECT_THAT(read_pack(path) == -1, "a pack cut to %zu bytes was taken", length);
    }
    rewrite(path, file, bytes + 1);
    EXPECT_INT(read_pack(path), -1);
    free(file);
}

/* As somebody would who means it: header and index with a checksum that is right. */
static void seal(unsigned char *file, uint32_t count)
{
    struct hash128 hash = hash128_begin();
    memcpy(file + 12, &count, sizeof count);
    hash128_add(&hash, file, 24);
    hash128_add(&hash, file + 40, count * sizeof(struct pack_place));
    memcpy(file + 24, &hash, sizeof hash);
}

static const char *reason(const char *path)
{
    struct pack pack;
    const char *text = pack_open(path, &pack);
    pack_close(&pack);
    return text ? text : "none";
}

TEST(an_index_that_leads_outside_is_refused)
{
    static const struct pack_place bad[] = {{{0, 0}, UINT64_MAX - 63, 128},
                                            {{0, 0}, 64, UINT64_MAX},
                                            {{0, 0}, 1 << 20, 0},
                                            {{0, 0}, 65, 100},
                                            {{UINT64_MAX, UINT64_MAX}, 0, 0}}; /* not ascending */
    char path[SCENE_PATH * 2];
    unsigned char *file;
    size_t bytes;
    scene_begin();
    snprintf(path, sizeof path, "%s", make_pack("a.pack", 0, KERNELS - 1, 13000));
    file = scene_read(path, &bytes);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
        struct pack_place good;
        memcpy(&good, file + 40, sizeof good);
        memcpy(file + 40, &bad[i], sizeof bad[i]);
        seal(file, KERNELS);
        scene_write(path, file, bytes);
        EXPECT_TEXT(reason(path), "its index is wrong");
        memcpy(file + 40, &good, sizeof good);
    }
    seal(file, KERNELS);
    scene_write(path, file, bytes);
    EXPECT_INT(read_pack(path), KERNELS);                                                /* sealing itself is right */
    memcpy(file + 40 + sizeof(struct pack_place), file + 40, sizeof(struct pack_place)); /* the same key twice */
    seal(file, KERNELS);
    scene_write(path, file, bytes);
    EXPECT_TEXT(reason(path), "its index is wrong");
    const uint32_t many = UINT32_MAX;
    memcpy(file + 12, &many, sizeof many);
    scene_write(path, file, bytes);
    EXPECT_TEXT(reason(path), "its length is wrong");
    free(file);
}

TEST(random_damage_never_yields_a_wrong_kernel)
{
    char path[SCENE_PATH * 2];
    unsigned char *file, *copy;
    uint64_t state = 1;
    size_t bytes;
    int survived = 0;
    scene_begin();
    snprintf(path, sizeof path, "%s", make_pack("a.pack", 0, KERNELS - 1, 13000));
    file = scene_read(path, &bytes);
    copy = malloc(bytes);
    for (int round = 0; round < 3000; ++round) {
        memcpy(copy, file, bytes);
        for (int i = 0; i < 1 + round % 9; ++i) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            copy[(state >> 33) % (round % 2 ? bytes : 40 + KERNELS * sizeof(struct pack_place))] = (unsigned char)state;
        }
        if (round % 3 == 0)
            seal(copy, KERNELS);
        rewrite(path, copy, bytes);
        survived += read_pack(path) > 0;
    }
    EXPECT(survived > 500 && survived < 2500);
    free(copy);
    free(file);
}

static void debug(void)
{
    scene_catch_stderr();
    setenv("DG_JIT_DEBUG", "1", 1);
}

TEST(a_damaged_kernel_comes_from_the_next_pack_or_the_compiler)
{
    struct get_job job = {.request = numbered(0), .may_compile = true, .prepare = debug};
    char list[SCENE_PATH * 8], path[SCENE_PATH * 2];
    unsigned char *file;
    size_t bytes;
    struct outcome outcome;
    scene_begin();
    snprintf(path, sizeof path, "%s", make_pack("a.pack", 0, 0, 13000));
    file = scene_read(path, &bytes);
    file[bytes - 1] ^= 1;
    scene_write(path, file, bytes);
    free(file);
    setenv("DG_PACK", path, 1);
    EXPECT_ORIGIN(scene_run(job), JIT_COMPILED);
    EXPECT_INT(count_text("a.pack: kernel "), 1);
    EXPECT_INT(count_text(" is damaged: its checksum is wrong"), 1);
    snprintf(list, sizeof list, "%s:%s", path, make_pack("b.pack", 0, 0, 13000));
    setenv("DG_PACK", list, 1);
    outcome = scene_run(job);
    EXPECT(is_stand_in(&outcome, 0));
}

/* ---- What is no pack --------------------------------------------------------------------------------------------- */

static void write_version(const char *path, uint32_t format)
{
    size_t bytes;
    unsigned char *file = scene_read(path, &bytes);
    memcpy(file + 8, &format, sizeof format);
    seal(file, 1);
    scene_write(path, file, bytes);
    free(file);
}

static void get_two(void *argument)
{
    struct outcome *outcomes = argument;
    debug();
    for (int i = 0; i < 2; ++i) {
        const struct jit_request request = numbered(i);
        struct jit_cubin cubin;
        enum jit_origin origin;
        const dg_status status = jit_get(&request, true, &cubin, &origin);
        scene_record(&outcomes[i], status, origin, &cubin);
    }
}

TEST(what_is_no_pack_is_told_once_and_passed_over)
{
    static const struct {
        const char *name, *why;
    } files[] = {{"missing", "No such file or directory"},
                 {"empty", "it is no pack: it has 0 bytes"},
                 {"text", "it is no pack"},
                 {"folder", "it is no regular file"},
                 {"fifo", "it is no regular file"},
                 {"future.pack", "its format is that of another version"}};
    struct outcome *outcomes = scene_shared(2 * sizeof *outcomes);
    char list[SCENE_PATH * 16] = "", line[SCENE_PATH * 4];
    scene_begin();
    scene_write(scene_path("empty"), "", 0);
    scene_write(scene_path("text"), SCENE_KERNEL, sizeof SCENE_KERNEL);
    EXPECT(mkdir(scene_path("folder"), 0755) == 0 && mkfifo(scene_path("fifo"), 0644) == 0);
    write_version(make_pack("future.pack", 0, 0, 13000), 2);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; ++i)
        snprintf(list + strlen(list), sizeof list - strlen(list), ":%s", scene_path(files[i].name));
    setenv("DG_PACK", list, 1);
    scene_wait(scene_fork(get_two, outcomes));
    for (int i = 0; i < 2; ++i)
        EXPECT_ORIGIN(outcomes[i], JIT_COMPILED);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; ++i) {
        snprintf(line, sizeof line, "deepgemm: pack: %s is passed over: %s\n", scene_path(files[i].name), files[i].why);
        EXPECT_THAT(count_text(line) == 1, "%d times: %s", count_text(line), line);
    }
    unsetenv("DG_JIT_DEBUG");
    EXPECT_ORIGIN(scene_run((struct get_job){numbered(0), true, NULL, scene_catch_stderr}), JIT_FROM_DISK);
    EXPECT_INT(count_text("deepgemm"), 0);
}

/* The last kernel's. */
static void damage(const char *path)
{
    size_t bytes;
    unsigned char *file = scene_read(path, &bytes);
    file[bytes - 1] ^= 1;
    scene_write(path, file, bytes);
    free(file);
}

TEST(a_query_counts_kernels_or_tells_what_is_wrong)
{
    int64_t kernels = 0, size = 0;
    char path[SCENE_PATH * 2];
    unsigned char *file;
    size_t bytes;
    scene_begin();
    snprintf(path, sizeof path, "%s", make_pack("a.pack", 0, 2, 13000));
    file = scene_read(path, &bytes);
    EXPECT_OK(dg_pack_query(path, &kernels, &size));
    EXPECT_INT(kernels, 3);
    EXPECT_INT(size, bytes);
    EXPECT_OK(dg_pack_query(path, NULL, NULL));
    free(file);
    damage(path);
    kernels = size = 0;
    EXPECT_REFUSED(dg_pack_query(path, &kernels, &size), DG_ERROR_IO, "1 of the 3 kernels in ");
    EXPECT_TEXT(dg_last_error(), "a.pack is damaged");
    EXPECT(kernels == 2 && size == (int64_t)bytes); /* what is left of it serves */
    EXPECT_REFUSED(dg_pack_query("/no/such", &kernels, &size), DG_ERROR_IO, "dg_pack_query: the pack /no/such cannot");
    EXPECT_REFUSED(dg_pack_query(NULL, &kernels, &size), DG_ERROR_INVALID_ARGUMENT, "path is NULL");
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

TEST(the_bytes_depend_on_the_kernels_alone)
{
    struct jit_cubin cubins[KERNELS];
    unsigned char *once, *grown;
    size_t bytes, grown_bytes;
    scene_begin();
    for (int i = 0; i < KERNELS; ++i)
        cubins[i] = stand_in(i, 13000);
    EXPECT_OK(pack_add(scene_path("once"), 90, cubins, KERNELS));
    const struct jit_cubin older = stand_in(2, 12090);
    EXPECT_OK(pack_add(scene_path("grown"), 90, &older, 1)); /* to be replaced by the new one */
    for (int i = KERNELS - 1; i >= 0; --i)
        EXPECT_OK(pack_add(scene_path("grown"), 90, &cubins[i], 1));
    EXPECT_OK(pack_add(scene_path("grown"), 90, NULL, 0));
    once = scene_read(scene_path("once"), &bytes);
    grown = scene_read(scene_path("grown"), &grown_bytes);
    EXPECT(bytes == grown_bytes && memcmp(once, grown, bytes) == 0);
    EXPECT_INT(read_pack(scene_path("once")), KERNELS);
    EXPECT_INT(count_files(), 2); /* nothing private is left */
    free(once);
    free(grown);
}

TEST(an_empty_pack_is_a_pack)
{
    int64_t kernels = 1;
    scene_begin();
    EXPECT_OK(pack_add(scene_path("none"), 90, NULL, 0));
    EXPECT_OK(dg_pack_query(scene_path("none"), &kernels, NULL));
    EXPECT_INT(kernels, 0);
    EXPECT_INT(read_pack(scene_path("none")), 0);
}

TEST(a_damaged_kernel_stays_behind_when_a_pack_grows)
{
    const struct jit_cubin more = stand_in(3, 13000);
    char path[SCENE_PATH * 2];
    scene_begin();
    snprintf(path, sizeof path, "%s", make_pack("a.pack", 0, 2, 13000));
    damage(path);
    EXPECT_OK(pack_add(path, 90, &more, 1));
    EXPECT_INT(read_pack(path), 3);
}

static ino_t file_number(const char *path)
{
    struct stat info;
    EXPECT(stat(path, &info) == 0);
    return info.st_ino;
}

TEST(a_pack_that_has_it_all_is_left_alone)
{
    struct jit_cubin cubins[KERNELS];
    char path[SCENE_PATH * 2];
    scene_begin();
    snprintf(path, sizeof path, "%s", make_pack("a.pack", 0, KERNELS - 1, 13000));
    for (int i = 0; i < KERNELS; ++i)
        cubins[i] = stand_in(i, 13000);
    const ino_t number = file_number(path);
    EXPECT_OK(pack_add(path, 90, cubins, KERNELS));
    EXPECT(file_number(path) == number);
    EXPECT_OK(pack_add(path, 90, &cubins[1], 2));
    EXPECT(file_number(path) == number);
    cubins[1].compiler = 13010; /* the same image, but not the same entry */
    EXPECT_OK(pack_add(path, 90, &cubins[1], 1));
    EXPECT(file_number(path) != number);
    cubins[1].compiler = 13000;
    EXPECT_OK(pack_add(path, 90, &cubins[1], 1));
    EXPECT_INT(read_pack(path), KERNELS);
    damage(path);
    EXPECT_OK(pack_add(path, 90, cubins, KERNELS)); /* repaired */
    EXPECT_INT(read_pack(path), KERNELS);
}

static bool is_link(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
}

TEST(a_link_stays_and_what_it_leads_to_grows)
{
    const struct jit_cubin first = stand_in(0, 13000), second = stand_in(1, 13000);
    scene_begin();
    EXPECT(mkdir(scene_path("below"), 0755) == 0 && symlink("below/next", scene_path("link")) == 0);
    EXPECT(symlink("a.pack", scene_path("below/next")) == 0); /* relative to the folder of the link */
    EXPECT_OK(pack_check(scene_path("link")));
    EXPECT_OK(pack_add(scene_path("link"), 90, &first, 1)); /* what it leads to is not there yet */
    EXPECT_INT(read_pack(scene_path("below/a.pack")), 1);
    EXPECT(symlink(scene_path("link"), scene_path("absolute")) == 0);
    EXPECT_OK(pack_add(scene_path("absolute"), 90, &second, 1));
    EXPECT_INT(read_pack(scene_path("below/a.pack")), 2);
    EXPECT(is_link(scene_path("link")) && is_link(scene_path("below/next")) && is_link(scene_path("absolute")));
    EXPECT(symlink("no/such/folder", scene_path("nowhere")) == 0 && symlink("loop", scene_path("loop")) == 0);
    EXPECT_REFUSED(pack_check(scene_path("nowhere")), DG_ERROR_IO, "cannot be written: No such file or directory");
    EXPECT_REFUSED(pack_check(scene_path("loop")), DG_ERROR_IO, "Too many levels of symbolic links");
    EXPECT(is_link(scene_path("nowhere")) && is_link(scene_path("loop")));
}

static int mode_of(const char *path)
{
    struct stat info;
    EXPECT(stat(path, &info) == 0);
    return (int)(info.st_mode & 07777);
}

TEST(a_new_pack_gets_what_the_umask_leaves_and_a_replaced_one_keeps_its_permissions)
{
    static const mode_t masks[] = {0, 022, 027, 077}, modes[] = {0600, 0640, 0664, 0444, 0755};
    const struct jit_cubin cubins[] = {stand_in(0, 13000), stand_in(1, 13000)};
    const mode_t before = umask(0);
    scene_begin();
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; ++i) {
        umask(masks[i]);
        unlink(scene_path("a.pack"));
        EXPECT_OK(pack_add(scene_path("a.pack"), 90, &cubins[0], 1));
        EXPECT_INT(mode_of(scene_path("a.pack")), 0644 & ~masks[i]);
    }
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; ++i) { /* the umask is 077 still */
        EXPECT(chmod(scene_path("a.pack"), modes[i]) == 0);
        const ino_t number = file_number(scene_path("a.pack"));
        EXPECT_OK(
            pack_add(scene_path("a.pack"), 90, &(struct jit_cubin){cubins[1].image, 10 + i, cubins[1].key, 1, 0}, 1));
        EXPECT(file_number(scene_path("a.pack")) != number);
        EXPECT_INT(mode_of(scene_path("a.pack")), modes[i]);
    }
    umask(before);
}

TEST(even_no_permissions_at_all_are_kept)
{
    const struct jit_cubin cubin = stand_in(0, 13000);
    struct pack_item item = {cubin.key, entry_header_make(cubin.key, 90, 13000, cubin.image, cubin.bytes),
                             (void *)(uintptr_t)cubin.image};
    const char *path;
    scene_begin();
    path = make_pack("a.pack", 1, 1, 13000);
    EXPECT(chmod(path, 0) == 0);
    EXPECT_INT(pack_write(path, &item, 1), 0);
    EXPECT_INT(mode_of(path), 0);
}

struct refusal {
    dg_status status;
    char sentence[512];
};

static void note(struct refusal *refusal, dg_status status)
{
    refusal->status = status;
    snprintf(refusal->sentence, sizeof refusal->sentence, "%s", status ? dg_last_error() : "");
}

static void add_in_sealed_folder(void *refusals)
{
    struct jit_cubin cubins[KERNELS];
    for (int i = 0; i < KERNELS; ++i)
        cubins[i] = stand_in(i, 13000);
    scene_become_nobody();
    note(&((struct refusal *)refusals)[0], pack_check(scene_path("sealed/a.pack")));
    note(&((struct refusal *)refusals)[1], pack_add(scene_path("sealed/a.pack"), 90, cubins, KERNELS - 1));
    note(&((struct refusal *)refusals)[2], pack_add(scene_path("sealed/a.pack"), 90, cubins, KERNELS));
    note(&((struct refusal *)refusals)[3], pack_check(scene_path("sealed/b.pack")));
}

TEST(a_pack_that_has_it_all_may_lie_where_nothing_can_be_written)
{
    struct refusal *refusals = scene_shared(4 * sizeof *refusals);
    scene_begin();
    EXPECT(mkdir(scene_path("sealed"), 0755) == 0);
    EXPECT(chmod(make_pack("sealed/a.pack", 0, KERNELS - 2, 13000), 0644) == 0);
    EXPECT(chmod(scene_path("sealed"), 0555) == 0);
    scene_wait(scene_fork(add_in_sealed_folder, refusals));
    EXPECT(chmod(scene_path("sealed"), 0755) == 0);
    EXPECT_THAT(refusals[0].status == DG_SUCCESS, "%s", refusals[0].sentence);
    EXPECT_THAT(refusals[1].status == DG_SUCCESS, "%s", refusals[1].sentence);
    EXPECT_TEXT(refusals[2].sentence, "sealed/a.pack cannot be written: Permission denied");
    EXPECT_TEXT(refusals[3].sentence, "sealed/b.pack cannot be written: Permission denied");
}

static void use_unreadable(void *refusals)
{
    const struct jit_cubin cubin = stand_in(0, 13000);
    scene_become_nobody();
    note(&((struct refusal *)refusals)[0], pack_check(scene_path("a.pack")));
    note(&((struct refusal *)refusals)[1], pack_add(scene_path("a.pack"), 90, &cubin, 1));
    note(&((struct refusal *)refusals)[2], dg_pack_query(scene_path("a.pack"), NULL, NULL));
}

TEST(an_unreadable_pack_is_told_as_such)
{
    struct refusal *refusals = scene_shared(3 * sizeof *refusals);
    scene_begin();
    EXPECT(chmod(make_pack("a.pack", 0, 0, 13000), 0) == 0);
    scene_wait(scene_fork(use_unreadable, refusals));
    EXPECT_TEXT(refusals[0].sentence, "no kernel can be added to it: Permission denied");
    EXPECT_TEXT(refusals[1].sentence, "no kernel can be added to it: Permission denied");
    EXPECT_TEXT(refusals[2].sentence, "a.pack cannot be used: Permission denied");
    remove_compiler();
    setenv("DG_PACK", scene_path("a.pack"), 1);
    for (int may_compile = 0; may_compile < 2; ++may_compile) {
        const struct outcome outcome = scene_run((struct get_job){numbered(0), may_compile, NULL, scene_become_nobody});
        EXPECT_TEXT(outcome.message, "; the pack /");
        EXPECT_TEXT(outcome.message, "a.pack cannot be used: Permission denied");
    }
}

static void expect_in_the_way(const char *path, const char *why)
{
    const struct jit_cubin cubin = stand_in(0, 13000);
    EXPECT_REFUSED(pack_check(path), DG_ERROR_IO, why);
    EXPECT_REFUSED(pack_add(path, 90, &cubin, 1), DG_ERROR_IO, why);
    EXPECT_TEXT(dg_last_error(), path);
}

TEST(a_pack_takes_no_other_files_place)
{
    size_t bytes;
    unsigned char *file;
    scene_begin();
    scene_write(scene_path("weights"), "precious, and long enough to be a pack: 40 bytes", 48);
    EXPECT(mkdir(scene_path("folder"), 0755) == 0);
    expect_in_the_way(scene_path("weights"),
                      "is in the way of the pack, and no kernel can be added to it: it is no pack");
    scene_write(scene_path("short"), "abc", 3);
    expect_in_the_way(scene_path("short"), "it is no pack: it has 3 bytes");
    scene_write(scene_path("short"), "a", 1);
    expect_in_the_way(scene_path("short"), "it is no pack: it has 1 byte");
    expect_in_the_way(scene_path("folder"), "it is no regular file");
    expect_in_the_way(scene_path("weights/below"), "Not a directory");
    expect_in_the_way(scene_path("no/such/folder.pack"), "cannot be written: No such file or directory");
    EXPECT_REFUSED(pack_check(""), DG_ERROR_INVALID_ARGUMENT, "pack is \"\"; wanted a path without");
    EXPECT_REFUSED(pack_check("a:b"), DG_ERROR_INVALID_ARGUMENT, "pack is \"a:b\"");
    file = scene_read(scene_path("weights"), &bytes);
    EXPECT(bytes == 48 && memcmp(file, "precious", 8) == 0);
    free(file);
    EXPECT_INT(count_files(), 3);
}

static int32_t compiler_in(const char *path)
{
    setenv("DG_PACK", path, 1);
    return found_compiler(0);
}

/* What was checked is what is used, whatever becomes of the file. */
TEST(a_pack_in_use_may_be_cut_short_or_written_over)
{
    size_t bytes;
    unsigned char *file;
    char path[SCENE_PATH * 2];
    scene_begin();
    snprintf(path, sizeof path, "%s", make_pack("a.pack", 0, 2, 13000));
    EXPECT_INT(compiler_in(path), 13000);
    file = scene_read(path, &bytes);
    memset(file, 0x55, bytes);
    scene_write(path, file, bytes);
    free(file);
    EXPECT_INT(compiler_in(path), 13000);
    EXPECT(truncate(path, 0) == 0);
    EXPECT_INT(compiler_in(path), 13000);
}

static char many_path[SCENE_PATH * 2];

static void *add_one(void *number)
{
    const int i = *(const int *)number;
    const struct jit_cubin cubin = stand_in(i, 13000);
    operation_begin("dg_test");
    EXPECT_OK(pack_add(many_path, 90, &cubin, 1));
    return NULL;
}

TEST(who_adds_at_the_same_time_loses_nothing)
{
    enum { ADDERS = KERNELS };
    pthread_t threads[ADDERS];
    int numbers[ADDERS];
    scene_begin();
    snprintf(many_path, sizeof many_path, "%s", scene_path("many.pack"));
    for (int i = 0; i < ADDERS; ++i) {
        numbers[i] = i;
        EXPECT(pthread_create(&threads[i], NULL, add_one, &numbers[i]) == 0);
    }
    for (int i = 0; i < ADDERS; ++i)
        pthread_join(threads[i], NULL);
    EXPECT_INT(read_pack(many_path), ADDERS);
}

static void add_on_a_full_disk(void *argument)
{
    const struct rlimit limit = {700, 700};
    const struct jit_cubin cubin = stand_in(4, 13000);
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || pack_add(argument, 90, &cubin, 1) != DG_ERROR_IO ||
        !strstr(dg_last_error(), "cannot be written: File too large"))
        _exit(1);
}

TEST(a_full_disk_leaves_the_old_pack)
{
    char path[SCENE_PATH * 2];
    scene_begin();
    snprintf(path, sizeof path, "%s", make_pack("a.pack", 0, 3, 13000));
    scene_wait(scene_fork(add_on_a_full_disk, path));
    EXPECT_INT(read_pack(path), 4);
    EXPECT_INT(count_files(), 1);
}

/* ---- Threads and forks ------------------------------------------------------------------------------------------- */

struct thread_job {
    struct jit_request request;
    struct outcome outcome;
};

static void *thread_get(void *argument)
{
    struct thread_job *job = argument;
    struct get_job get = {.request = job->request, .may_compile = false, .outcome = &job->outcome};
    scene_get_body(&get);
    return NULL;
}

static void run_threads(void *argument)
{
    struct thread_job *jobs = argument;
    pthread_t threads[THREADS];
    debug();
    for (int i = 0; i < THREADS; ++i)
        if (pthread_create(&threads[i], NULL, thread_get, &jobs[i]) != 0)
            _exit(1);
    for (int i = 0; i < THREADS; ++i)
        pthread_join(threads[i], NULL);
}

TEST(threads_open_a_pack_once)
{
    struct thread_job *jobs = scene_shared(THREADS * sizeof *jobs);
    char list[SCENE_PATH * 8];
    scene_begin();
    remove_compiler();
    snprintf(list, sizeof list, "/no/such:%s", make_pack("a.pack", 0, KERNELS - 1, 13000));
    setenv("DG_PACK", list, 1);
    for (int i = 0; i < THREADS; ++i)
        jobs[i].request = numbered(i % KERNELS);
    scene_wait(scene_fork(run_threads, jobs));
    for (int i = 0; i < THREADS; ++i)
        EXPECT_THAT(is_stand_in(&jobs[i].outcome, i % KERNELS), "thread %d: %s", i, jobs[i].outcome.message);
    EXPECT_INT(count_text("pack: /no/such is passed over"), 1);
}

static atomic_bool stop;

/* Files of ever new names are looked for, so that the list of them changes all the time. */
static void *open_others(void *argument)
{
    char path[SCENE_PATH * 4];
    struct jit_request request = scene_request();
    struct jit_unit unit;
    struct cache_entry entry;
    request.config = "#define VALUE -1\n";
    if (jit_unit_make(&request, &unit) != DG_SUCCESS)
        _exit(1);
    for (int i = 0; !stop; ++i) {
        snprintf(path, sizeof path, "/no/such/%d:%s", i, (const char *)argument);
        setenv("DG_PACK", path, 1);
        pack_find(&unit, &entry);
    }
    jit_unit_free(&unit);
    return NULL;
}

struct fork_job {
    const char *path;
    struct outcome outcome;
};

static void fork_often(void *argument)
{
    struct fork_job *job = argument;
    struct get_job get = {.request = numbered(0), .may_compile = false, .outcome = &job->outcome};
    pthread_t thread;
    if (pthread_create(&thread, NULL, open_others, (void *)(uintptr_t)job->path) != 0)
        _exit(1);
    for (int i = 0; i < 100; ++i) {
        int state;
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            scene_get_body(&get);
            _exit(job->outcome.status != DG_SUCCESS || job->outcome.origin != JIT_FROM_PACK);
        }
        if (waitpid(child, &state, 0) != child || state != 0)
            _exit(1);
    }
    stop = true;
    pthread_join(thread, NULL);
}

TEST(a_child_forked_while_packs_are_opened_finds_its_kernels)
{
    struct fork_job *job = scene_shared(sizeof *job);
    scene_begin();
    remove_compiler();
    job->path = make_pack("a.pack", 0, KERNELS - 1, 13000);
    setenv("DG_PACK", job->path, 1);
    scene_wait(scene_fork(fork_often, job));
    EXPECT(is_stand_in(&job->outcome, 0));
}
