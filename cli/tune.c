/* `deepgemm tune`: times all configurations, and fits the constants of the cost models that choose among them. */
#include "tune.h"

#include "program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char help_text[] =
    "Usage: deepgemm tune CASE... | --shapes FILE [--csv FILE] [options]\n"
    "       deepgemm tune --from FILE... [--out DIR]\n\n"
    "The first form times every configuration of the kernels for gemm cases on the GPU, beside cuBLASLt, and writes\n"
    "CSV. All that sum in the same order must give the same bits. The second fits the constants with which the "
    "library\n"
    "predicts how long a configuration takes, and tells how well they choose. For developers of the library.\n\n"
    "  CASE              a gemm case, quoted or not; {a|b} stands for each alternative\n"
    "  --shapes FILE     cases from a file\n"
    "  --csv FILE        where the times go (default: standard output)\n"
    "  --kernel NAME     only 1d2d or skinny; choice: what the library chooses. May come several times\n"
    "  --tile TILE       only BLOCK_MxBLOCK_N[cCLUSTER_MxCLUSTER_N] of 1d2d, or sBLOCK_MxSTEPxSPLITSxBLOCKS_PER_SM of\n"
    "                    skinny. May come several times\n"
    "  --variant X=FILE  another text of the one --kernel, under the name X. May come several times\n"
    "  --prune FACTOR    leave out what is predicted to take FACTOR times the least (default 1.7; 0: nothing)\n"
    "  --rounds N        of each configuration, in another order each; the best counts (default 3)\n"
    "  --reps N          calls in a round, their mean counts (default 4)\n"
    "  --device D        cuda:N, when there are several\n"
    "  --from FILE       what the first form has written for plain cases; of several files the later ones count\n"
    "  --favour FILE     cases that count three times\n"
    "  --steps N         of the search (default 20000; 0: only tell how well the constants in use choose)\n"
    "  --out DIR         write the constants there, for src/plan\n"
    "  -h, --help        this text\n";

struct work {
    struct tune_sweep sweep;
    struct tune_fit fit;
    const struct gemm_row *kernels[3];
    int kernel_count;
    const char *csv_path;
    unsigned came; /* options */
};

/* ---- Tiles ------------------------------------------------------------------------------------------------------- */

static bool add_tile(struct tune_sweep *sweep, const struct tune_tile *tile)
{
    if (sweep->tile_count == TUNE_MAX_TILES)
        return trouble("there are more than %d tiles", TUNE_MAX_TILES);
    sweep->tiles[sweep->tile_count++] = *tile;
    return true;
}

static void add_tiles_1d2d(struct tune_sweep *sweep)
{
    struct tune_tile tile = {.row = &gemm_row_sm90_fp8_gemm_1d2d};
    for (int32_t i = 0; gemm_1d2d_tile_at(i, &tile.sm90); ++i)
        add_tile(sweep, &tile);
}

static void add_tiles_skinny(struct tune_sweep *sweep)
{
    struct tune_tile tile = {.row = &gemm_row_sm90_fp8_gemm_skinny};
    for (int32_t i = 0; gemm_skinny_tile_at(i, &tile.skinny); ++i)
        add_tile(sweep, &tile);
}

static void add_all_tiles(struct work *work)
{
    for (int i = 0; i < work->kernel_count; ++i)
        if (work->kernels[i] == &gemm_row_sm90_fp8_gemm_1d2d)
            add_tiles_1d2d(&work->sweep);
        else if (work->kernels[i])
            add_tiles_skinny(&work->sweep);
        else
            add_tile(&work->sweep, &(struct tune_tile){.row = NULL});
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static bool take_kernel(struct work *work, const char *name)
{
    if (work->kernel_count == 3)
        return trouble("--kernel is given more than three times");
    const struct gemm_row **slot = &work->kernels[work->kernel_count++];
    *slot = strcmp(name, "1d2d") == 0     ? &gemm_row_sm90_fp8_gemm_1d2d
            : strcmp(name, "skinny") == 0 ? &gemm_row_sm90_fp8_gemm_skinny
                                          : NULL;
    return *slot || strcmp(name, "choice") == 0 || trouble("--kernel %s: wanted is 1d2d, skinny or choice", name);
}

/* "128x96", "128x96c2x1" */
static bool parse_1d2d(const char *text, struct gemm_1d2d_tile *t)
{
    int end = 0, more = 0;
    t->cluster_m = t->cluster_n = 1;
    if (sscanf(text, "%dx%d%n", &t->block_m, &t->block_n, &end) < 2)
        return false;
    if (text[end] && sscanf(text + end, "c%dx%d%n", &t->cluster_m, &t->cluster_n, &more) < 2)
        return false;
    return text[end + more] == 0;
}

/* "s16x2x4x1" */
static bool parse_skinny(const char *text, struct gemm_skinny_tile *t)
{
    int end = 0;
    return sscanf(text, "s%dx%dx%dx%d%n", &t->block_m, &t->step, &t->splits, &t->blocks_per_sm, &end) == 4 &&
           text[end] == 0;
}

static bool take_tile(struct work *work, const char *text)
{
    struct tune_tile t = {.row = *text == 's' ? &gemm_row_sm90_fp8_gemm_skinny : &gemm_row_sm90_fp8_gemm_1d2d};
    const bool parsed = *text == 's' ? parse_skinny(text, &t.skinny) : parse_1d2d(text, &t.sm90);
    if (!parsed || !tune_tile_exists(&t))
        return trouble("\"%.40s\" is no tile such as 128x96, 128x96c2x1 or s16x2x4x1", text);
    return add_tile(&work->sweep, &t);
}

static bool read_text(const char *path, char **text)
{
    size_t room = 0;
    FILE *file = fopen(path, "r");
    *text = NULL;
    const bool read = file && getdelim(text, &room, 0, file) >= 0;
    if (file)
        fclose(file);
    return read || trouble("%s cannot be read: %s", path, strerror(errno));
}

static bool take_variant(struct tune_sweep *sweep, char *text)
{
    char *path = strchr(text, '=');
    if (path == NULL)
        return trouble("\"%.40s\" is no variant such as new=new.cu", text);
    if (sweep->variant_count == TUNE_MAX_VARIANTS)
        return trouble("there are more than %d variants", TUNE_MAX_VARIANTS);
    *path++ = 0;
    struct tune_variant *variant = &sweep->variants[sweep->variant_count++];
    variant->name = text;
    return read_text(path, &variant->text);
}

static bool take_factor(struct tune_sweep *sweep, const char *text)
{
    char *end;
    sweep->prune = strtod(text, &end);
    if (sweep->prune == 0.0)
        sweep->prune = 1e30;
    return (end != text && *end == 0 && sweep->prune >= 1.0) ||
           trouble("\"%.40s\" is no factor of 1 or more, nor 0", text);
}

static bool take_from(struct tune_fit *fit, const char *path)
{
    if (fit->path_count == (int)(sizeof fit->paths / sizeof *fit->paths))
        return trouble("--from is given too often");
    fit->paths[fit->path_count++] = path;
    return true;
}

enum { SHAPES = OPTION_LONG, CSV, KERNEL, TILE, VARIANT, PRUNE, ROUNDS, REPS, DEVICE, FROM, FAVOUR, STEPS, OUT };

static bool take_option(struct work *work, int option)
{
    work->came |= OPTION_BIT(option);
    switch (option) {
    case SHAPES:
        return case_list_file(&work->sweep.cases, optarg);
    case CSV:
        work->csv_path = optarg;
        return true;
    case KERNEL:
        return take_kernel(work, optarg);
    case TILE:
        return take_tile(work, optarg);
    case VARIANT:
        return take_variant(&work->sweep, optarg);
    case PRUNE:
        return take_factor(&work->sweep, optarg);
    case ROUNDS:
        return parse_number(optarg, 1, 1000, &work->sweep.rounds);
    case REPS:
        return parse_number(optarg, 1, 1000, &work->sweep.reps);
    case DEVICE:
        return parse_device(optarg, &work->sweep.device);
    case FROM:
        return take_from(&work->fit, optarg);
    case FAVOUR:
        return case_list_file(&work->fit.favourites, optarg);
    case STEPS:
        return parse_number(optarg, 0, 1000000000, &work->fit.steps);
    default:
        work->fit.directory = optarg;
        return true;
    }
}

static const struct option options[] = {HELP_OPTION,
                                        {"shapes", required_argument, NULL, SHAPES},
                                        {"csv", required_argument, NULL, CSV},
                                        {"kernel", required_argument, NULL, KERNEL},
                                        {"tile", required_argument, NULL, TILE},
                                        {"variant", required_argument, NULL, VARIANT},
                                        {"prune", required_argument, NULL, PRUNE},
                                        {"rounds", required_argument, NULL, ROUNDS},
                                        {"reps", required_argument, NULL, REPS},
                                        {"device", required_argument, NULL, DEVICE},
                                        {"from", required_argument, NULL, FROM},
                                        {"favour", required_argument, NULL, FAVOUR},
                                        {"steps", required_argument, NULL, STEPS},
                                        {"out", required_argument, NULL, OUT},
                                        {0}};

static bool check_options(const struct work *work)
{
    const unsigned of_fit = OPTION_BIT(FROM) | OPTION_BIT(FAVOUR) | OPTION_BIT(STEPS) | OPTION_BIT(OUT);
    if (work->fit.path_count > 0)
        return check_no_effect(options, work->came, ~of_fit, "with --from");
    return check_no_effect(options, work->came, of_fit, "without --from") &&
           (work->sweep.variant_count > 0 || work->sweep.tile_count == 0 ||
            check_no_effect(options, work->came, OPTION_BIT(KERNEL), "on a --tile without --variant"));
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

static bool measure(struct work *work)
{
    struct tune_sweep *sweep = &work->sweep;
    if (sweep->device == DG_CPU)
        return trouble("configurations are timed on a GPU, and there is none");
    sweep->csv = work->csv_path ? fopen(work->csv_path, "w") : stdout;
    if (sweep->csv == NULL)
        return trouble("%s cannot be written: %s", work->csv_path, strerror(errno));
    bool done = tune_sweep(sweep);
    const bool written = !ferror(sweep->csv);
    if (work->csv_path && (fclose(sweep->csv) != 0 || !written) && done)
        done = trouble("%s could not be written", work->csv_path);
    return done;
}

/* Without options all tiles of both kernels. */
static void choose_tiles(struct work *work)
{
    if (work->kernel_count == 0) {
        work->kernels[work->kernel_count++] = &gemm_row_sm90_fp8_gemm_1d2d;
        work->kernels[work->kernel_count++] = &gemm_row_sm90_fp8_gemm_skinny;
    }
    if (work->sweep.tile_count == 0)
        add_all_tiles(work);
}

/* A variant's text replaces that of one kernel, and all tiles must be of that one. */
static bool check_variants(const struct work *work)
{
    const struct tune_sweep *sweep = &work->sweep;
    if (sweep->variant_count == 0)
        return true;
    if (work->kernel_count != 1 || work->kernels[0] == NULL)
        return trouble("--variant wants one --kernel, 1d2d or skinny");
    for (int i = 0; i < sweep->tile_count; ++i)
        if (sweep->tiles[i].row != work->kernels[0])
            return trouble("--variant: a --tile is not one of the --kernel");
    return sweep->tile_count * sweep->variant_count <= TUNE_MAX_CANDIDATES ||
           trouble("%d variants of %d tiles are more than %d", sweep->variant_count, sweep->tile_count,
                   TUNE_MAX_CANDIDATES);
}

static int work_on(struct work *work)
{
    const bool fits = work->fit.path_count > 0;
    if (fits && work->sweep.cases.count > 0)
        return fail_usage("cases are measured and --from is fitted: one after the other");
    if (!fits && work->sweep.cases.count == 0)
        return fail_usage("nothing to tune: give a case or --shapes to measure, or --from to fit");
    if (!check_options(work))
        return fail_usage("%s", trouble_text());
    if (fits)
        return tune_fit(&work->fit) ? EXIT_PASS : fail_check();
    choose_tiles(work);
    if (!check_variants(work))
        return fail_usage("%s", trouble_text());
    return measure(work) ? EXIT_PASS : fail_check();
}

static void release(struct work *work)
{
    for (int i = 0; i < work->sweep.variant_count; ++i)
        free(work->sweep.variants[i].text);
    case_list_free(&work->sweep.cases);
    case_list_free(&work->fit.favourites);
    free(work);
}

static int run(int argc, char **argv)
{
    struct work *work = get_memory(sizeof *work);
    int code = EXIT_PASS;
    *work = (struct work){.sweep = {.device = -2, .rounds = 3, .reps = 4, .prune = 1.7}, .fit = {.steps = 20000}};
    for (int option; (option = next_option(argc, argv, options, &code)) != -1;) {
        if (option != OPTION_DONE && take_option(work, option))
            continue;
        if (option != OPTION_DONE)
            code = fail_usage("%s", trouble_text());
        release(work);
        return code;
    }
    if (work->sweep.device == -2) /* not given */
        parse_device("auto", &work->sweep.device);
    if (!case_list_arguments(&work->sweep.cases, argc - optind, argv + optind))
        code = fail_usage("%s", trouble_text());
    else
        code = work_on(work);
    release(work);
    return code;
}

const struct command command_tune = {"tune", "time all configurations, and fit what chooses among them", help_text,
                                     run};
