/*
 * Fitting the cost models: a search for constants with which the least predicted configuration of each problem is the
 * fastest measured, or nearly. From the constants in use, small random changes of one to three are kept if they do not
 * make it worse.
 */
#include "tune.h"

#include "problem.h"
#include "program.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- The models -------------------------------------------------------------------------------------------------- */

struct constant {
    const char *name, *what;
};

#define COST(name, value, what) {#name, what},
static const struct constant constants_1d2d[] = {
#include "plan/gemm_sm90_costs.def"
};
static const struct constant constants_skinny[] = {
#include "plan/gemm_skinny_costs.def"
};
#undef COST

enum {
    COUNT_1D2D = sizeof constants_1d2d / sizeof *constants_1d2d,
    COUNT_SKINNY = sizeof constants_skinny / sizeof *constants_skinny,
    COUNT = COUNT_1D2D + COUNT_SKINNY
};

/* The constants of both models as numbers to be changed. */
union costs {
    double values[COUNT];
    struct {
        struct gemm_1d2d_costs sm90;
        struct gemm_skinny_costs skinny;
    } of;
};
_Static_assert(sizeof(union costs) == COUNT * sizeof(double), "the constants are doubles side by side");

/* ---- Measurements ------------------------------------------------------------------------------------------------ */

struct shape {
    struct test_case test;
    struct gemm_problem problem;
    double weight;
    double best_us[3]; /* of sm90_fp8_gemm_1d2d, of sm90_fp8_gemm_skinny, of both */
};

struct measured {
    struct tune_tile tile;
    struct gemm_plan plan;
    int shape, kernel; /* 0: sm90_fp8_gemm_1d2d, 1: sm90_fp8_gemm_skinny */
    double us, cycles;
};

struct data {
    dg_device_info device;
    struct shape *shapes;
    struct measured *rows;
    int shape_count, row_count, shape_space, row_space;
};

static void *more(void *items, int count, int *space, size_t bytes)
{
    if (count < *space)
        return items;
    *space = *space ? 2 * *space : 1024;
    void *grown = get_memory((size_t)*space * bytes);
    if (count)
        memcpy(grown, items, (size_t)count * bytes);
    free(items);
    return grown;
}

/* The case that the three numbers tell all of. */
static bool plain_case(int64_t m, int64_t n, int64_t k, struct test_case *test)
{
    char line[128];
    snprintf(line, sizeof line, "gemm fp8 m=%" PRId64 " n=%" PRId64 " k=%" PRId64, m, n, k);
    return case_parse(line, test);
}

static bool is_same_case(const struct test_case *x, const struct test_case *y)
{
    return memcmp(x, y, sizeof *x) == 0;
}

static bool describe(struct shape *shape)
{
    struct gemm gemm;
    if (!gemm_describe(&gemm, &shape->test, 0))
        return false;
    const dg_gemm_args args = gemm_args(&gemm);
    return ok(gemm_problem_make(&args, NULL_DATA_ACCEPTED, &shape->problem));
}

/* The number of the shape; -1: trouble. */
static int shape_of(struct data *data, const struct test_case *test)
{
    for (int i = data->shape_count; i-- > 0;)
        if (is_same_case(&data->shapes[i].test, test))
            return i;
    data->shapes = more(data->shapes, data->shape_count, &data->shape_space, sizeof *data->shapes);
    struct shape *shape = &data->shapes[data->shape_count];
    *shape = (struct shape){.test = *test, .weight = 1.0, .best_us = {INFINITY, INFINITY, INFINITY}};
    return describe(shape) ? data->shape_count++ : -1;
}

static int32_t field_of(const char *config, const char *name)
{
    const char *at = strstr(config, name);
    return at ? (int32_t)strtol(at + strlen(name), NULL, 10) : 0;
}

static struct tune_tile tile_of(int kernel, const char *config)
{
    struct tune_tile t = {.row = &gemm_row_sm90_fp8_gemm_1d2d};
    if (kernel == 1) {
        t.row = &gemm_row_sm90_fp8_gemm_skinny;
        t.skinny = (struct gemm_skinny_tile){field_of(config, "block_m="), field_of(config, "step="),
                                             field_of(config, "splits="), field_of(config, "blocks_per_sm=")};
        return t;
    }
    t.sm90 = (struct gemm_1d2d_tile){field_of(config, "block_m="), field_of(config, "block_n="),
                                     field_of(config, "cluster_m="), field_of(config, "cluster_n=")};
    return t;
}

static bool same_tile(const struct tune_tile *x, const struct tune_tile *y)
{
    return memcmp(x, y, sizeof *x) == 0;
}

static void add_row(struct data *data, const struct measured *row)
{
    for (int i = 0; i < data->row_count; ++i)
        if (data->rows[i].shape == row->shape && same_tile(&data->rows[i].tile, &row->tile)) {
            data->rows[i] = *row;
            return;
        }
    data->rows = more(data->rows, data->row_count, &data->row_space, sizeof *data->rows);
    data->rows[data->row_count++] = *row;
}

static bool read_line(struct data *data, const char *line)
{
    char kernel[64], name[CASE_NAME_BYTES];
    long long m, n, k;
    int config = 0;
    struct measured row;
    struct test_case plain, test;
    memset(&row, 0, sizeof row);
    if (sscanf(line, "%*[^,],%63[^,],%lld,%lld,%lld,%lf,%*f,%*f,%n%*[^,],\"%319[^\"]", kernel, &m, &n, &k, &row.us,
               &config, name) != 6 ||
        m < 1 || n < 1 || k < 1 || !isfinite(row.us) || row.us <= 0.0)
        return trouble("is no line that a sweep has written");
    if (!plain_case(m, n, k, &plain) || !case_parse(name, &test))
        return false;
    if (!is_same_case(&test, &plain))
        return trouble("is of a case that has more than m, n and k, which is not fitted: %.200s", name);
    row.kernel = strcmp(kernel, gemm_row_sm90_fp8_gemm_skinny.name) == 0;
    if (!row.kernel && strcmp(kernel, gemm_row_sm90_fp8_gemm_1d2d.name) != 0)
        return true; /* of a kernel that has no model */
    row.tile = tile_of(row.kernel, line + config);
    if (!tune_tile_exists(&row.tile))
        return trouble("has no tile of %s", kernel);
    row.shape = shape_of(data, &plain);
    if (row.shape < 0)
        return false;
    /* A tile that the problem cannot have by now is no candidate. */
    if (tune_plan(&data->shapes[row.shape].problem, &data->device, &row.tile, &row.plan))
        add_row(data, &row);
    return true;
}

static bool read_file(struct data *data, const char *path)
{
    char *line = NULL;
    size_t room = 0;
    bool done = true;
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return trouble("%s cannot be opened: %s", path, strerror(errno));
    for (int number = 1; done && getline(&line, &room, file) >= 0; ++number) {
        char why[512];
        if (strncmp(line, "variant,", 8) == 0 || read_line(data, line))
            continue;
        snprintf(why, sizeof why, "%s", trouble_text());
        done = trouble("%s:%d: %s", path, number, why);
    }
    if (done && ferror(file))
        done = trouble("%s cannot be read: %s", path, strerror(errno));
    free(line);
    fclose(file);
    return done;
}

static void find_best(struct data *data)
{
    for (int i = 0; i < data->row_count; ++i) {
        struct shape *shape = &data->shapes[data->rows[i].shape];
        double *own = &shape->best_us[data->rows[i].kernel], *both = &shape->best_us[2];
        *own = fmin(*own, data->rows[i].us);
        *both = fmin(*both, data->rows[i].us);
    }
}

static void favour(struct data *data, const struct case_list *cases)
{
    for (int i = 0; i < data->shape_count; ++i)
        for (int64_t j = 0; j < cases->count; ++j)
            if (is_same_case(&data->shapes[i].test, &cases->items[j]))
                data->shapes[i].weight = 3.0;
}

static bool read_all(struct data *data, const struct tune_fit *fit)
{
    if (!ok(dg_device_preset("h200", &data->device)))
        return false;
    for (int i = 0; i < fit->path_count; ++i)
        if (!read_file(data, fit->paths[i]))
            return false;
    find_best(data);
    favour(data, &fit->favourites);
    return data->row_count > 0 || trouble("there is no measurement of a tile that exists");
}

/* ---- How well constants choose ----------------------------------------------------------------------------------- */

/* As --tile takes it. */
struct tile_name {
    char text[48];
};

struct choice {
    const struct measured *of[3]; /* as best_us */
};

static void predict_all(struct data *data, const union costs *costs)
{
    for (int i = 0; i < data->row_count; ++i) {
        struct measured *row = &data->rows[i];
        const struct gemm_problem *p = &data->shapes[row->shape].problem;
        row->cycles = row->kernel ? gemm_skinny_predict(&costs->of.skinny, p, data->device.num_sms, &row->plan.skinny)
                                  : gemm_1d2d_predict(&costs->of.sm90, p, &row->plan.sm90);
    }
}

static bool better(const struct measured *x, const struct measured *y)
{
    return y == NULL || x->cycles < y->cycles;
}

static void choose_all(const struct data *data, struct choice *choices)
{
    memset(choices, 0, (size_t)data->shape_count * sizeof *choices);
    for (int i = 0; i < data->row_count; ++i) {
        const struct measured *row = &data->rows[i];
        struct choice *choice = &choices[row->shape];
        if (better(row, choice->of[row->kernel]))
            choice->of[row->kernel] = row;
    }
    for (int i = 0; i < data->shape_count; ++i) {
        struct choice *c = &choices[i];
        const bool skinny = c->of[1] && (data->shapes[i].test.m <= GEMM_SKINNY_ALWAYS || c->of[0] == NULL ||
                                         c->of[1]->cycles <= c->of[0]->cycles);
        c->of[2] = c->of[skinny];
    }
}

/* How much slower than the best one the chosen one is; 0.1: by 10 %. */
static double loss_of(const struct data *data, const struct choice *choices, int shape, int which)
{
    const struct measured *chosen = choices[shape].of[which];
    return chosen ? chosen->us / data->shapes[shape].best_us[which] - 1.0 : 0.0;
}

/* Root mean square of the logarithm of predicted over measured time, over tiles that are not hopeless. */
static double error_of(const struct data *data)
{
    double sum = 0.0;
    int count = 0;
    for (int i = 0; i < data->row_count; ++i) {
        const struct measured *row = &data->rows[i];
        if (row->us > 1.3 * data->shapes[row->shape].best_us[2])
            continue;
        const double error = log(row->cycles / 1700.0 / row->us);
        sum += error * error;
        ++count;
    }
    return sqrt(sum / count);
}

/* What counts: the choice between all, most of all where it is off by more than a few percent; then each kernel's. */
static double badness(struct data *data, const union costs *costs, struct choice *choices)
{
    double sum = 0.0, weights = 0.0;
    predict_all(data, costs);
    choose_all(data, choices);
    for (int i = 0; i < data->shape_count; ++i) {
        const double both = loss_of(data, choices, i, 2);
        const double each = loss_of(data, choices, i, 0) + loss_of(data, choices, i, 1);
        sum += data->shapes[i].weight * (both + 0.5 * fmax(both - 0.04, 0.0) + 0.1 * each);
        weights += data->shapes[i].weight;
    }
    return sum / weights + 0.1 * error_of(data);
}

static struct tile_name tile_text(const struct tune_tile *t)
{
    struct tile_name out;
    if (t->row == &gemm_row_sm90_fp8_gemm_skinny)
        snprintf(out.text, sizeof out.text, "s%dx%dx%dx%d", t->skinny.block_m, t->skinny.step, t->skinny.splits,
                 t->skinny.blocks_per_sm);
    else
        snprintf(out.text, sizeof out.text, "%dx%dc%dx%d", t->sm90.block_m, t->sm90.block_n, t->sm90.cluster_m,
                 t->sm90.cluster_n);
    return out;
}

static void print_bad_choice(const struct data *data, const struct shape *shape, const struct measured *chosen)
{
    const struct test_case *t = &shape->test;
    const struct measured *best = chosen;
    for (int i = 0; i < data->row_count; ++i)
        if (&data->shapes[data->rows[i].shape] == shape && data->rows[i].us < best->us)
            best = &data->rows[i];
    printf("  m=%" PRId64 " n=%" PRId64 " k=%" PRId64 ": %s takes %.2f us, %s %.2f\n", t->m, t->n, t->k,
           tile_text(&chosen->tile).text, chosen->us, tile_text(&best->tile).text, best->us);
}

static void print_quality(const struct data *data, const struct choice *choices, const char *when, bool worst)
{
    double sum = 0.0;
    int good = 0;
    for (int i = 0; i < data->shape_count; ++i) {
        const double loss = loss_of(data, choices, i, 2);
        sum += loss;
        good += loss <= 0.05;
        if (worst && loss > 0.05)
            print_bad_choice(data, &data->shapes[i], choices[i].of[2]);
    }
    printf("%s: the choice is within 5 %% of the best for %d of %d problems, %.1f %% off on average; predictions %.0f "
           "%%\n",
           when, good, data->shape_count, 100.0 * sum / data->shape_count, 100.0 * error_of(data));
}

/* ---- The search -------------------------------------------------------------------------------------------------- */

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 9007199254740992.0;
}

static void change_some(union costs *costs, uint64_t *state)
{
    static const double sizes[] = {0.03, 0.2, 0.7};
    const int count = 1 + (int)(3.0 * uniform(state));
    const double size = sizes[(int)(3.0 * uniform(state))];
    for (int i = 0; i < count; ++i) {
        double *value = &costs->values[(int)(COUNT * uniform(state))];
        *value = fmax(*value * exp(size * (2.0 * uniform(state) - 1.0)), 1e-3);
    }
}

static void search(struct data *data, union costs *costs, int64_t steps, struct choice *choices)
{
    uint64_t state = 1;
    double least = badness(data, costs, choices);
    for (int64_t i = 0; i < steps; ++i) {
        union costs other = *costs;
        change_some(&other, &state);
        const double bad = badness(data, &other, choices);
        if (bad <= least) {
            least = bad;
            *costs = other;
        }
        if (i % 64 == 0)
            progress("step %" PRId64 " of %" PRId64 ", badness %.4f", i, steps, least);
    }
    progress_clear();
    badness(data, costs, choices);
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

static bool write_constants(const struct tune_fit *fit, const char *file, const char *kernel, const struct data *data,
                            const struct constant *constants, int count, const double *values)
{
    char path[4096], date[32], from[128] = "what was in use, not fitted anew.";
    const time_t now = time(NULL);
    struct tm local;
    snprintf(path, sizeof path, "%s/%s", fit->directory, file);
    if (fit->steps > 0)
        snprintf(from, sizeof from, "%d measurements of %d problems, planned for an H200.", data->row_count,
                 data->shape_count);
    strftime(date, sizeof date, "%Y-%m-%d", localtime_r(&now, &local));
    FILE *out = fopen(path, "w");
    if (out == NULL)
        return trouble("%s cannot be written: %s", path, strerror(errno));
    fprintf(out,
            "/* Cost model of %s. Written by `deepgemm tune` on %s, from\n"
            "   %s */\n",
            kernel, date, from);
    for (int i = 0; i < count; ++i)
        fprintf(out, "COST(%s, %.4g, \"%s\")\n", constants[i].name, values[i], constants[i].what);
    const bool written = !ferror(out);
    return (fclose(out) == 0 && written) || trouble("%s could not be written", path);
}

static bool write_all(const struct tune_fit *fit, const struct data *data, const union costs *costs)
{
    if (fit->directory == NULL)
        return true;
    return write_constants(fit, "gemm_sm90_costs.def", gemm_row_sm90_fp8_gemm_1d2d.name, data, constants_1d2d,
                           COUNT_1D2D, costs->values) &&
           write_constants(fit, "gemm_skinny_costs.def", gemm_row_sm90_fp8_gemm_skinny.name, data, constants_skinny,
                           COUNT_SKINNY, costs->values + COUNT_1D2D);
}

bool tune_fit(const struct tune_fit *fit)
{
    struct data data = {.device = DG_DEVICE_INFO_INIT};
    union costs costs = {.of = {gemm_1d2d_costs, gemm_skinny_costs}};
    struct choice *choices = NULL;
    bool done = read_all(&data, fit);
    if (done) {
        choices = get_memory((size_t)data.shape_count * sizeof *choices);
        badness(&data, &costs, choices);
        print_quality(&data, choices, "constants in use", fit->steps == 0);
        if (fit->steps > 0) {
            search(&data, &costs, fit->steps, choices);
            print_quality(&data, choices, "fitted", true);
        }
        done = write_all(fit, &data, &costs);
    }
    free(choices);
    free(data.rows);
    free(data.shapes);
    return done;
}
