/* The tile scheduler: every tile of every problem exactly once, whatever the number of SMs and the cluster size. */
#include "shared/gemm_sched.h"
#include "tests/test.h"

/* Walk the tiles as the kernel's blocks do, and count how often each block tile of D is taken. */
static void count_tiles(const struct gemm_sched *s, int clusters, int cluster_m, int cluster_n, unsigned char *taken,
                        int rows, int cols)
{
    for (int first = 0; first < clusters; ++first)
        for (int index = first; index < s->tiles; index += clusters) {
            struct gemm_tile t = gemm_sched_tile(s, index);
            EXPECT(t.batch >= 0 && t.m >= 0 && t.n >= 0 && t.m < s->m_tiles && t.n < s->n_tiles);
            for (int rank = 0; rank < cluster_m * cluster_n; ++rank) {
                int row = t.m * cluster_m + (cluster_m > 1 ? rank : 0);
                int col = t.n * cluster_n + (cluster_n > 1 ? rank : 0);
                if (row < rows && col < cols) /* the second block of the last cluster may have nothing to do */
                    ++taken[(t.batch * rows + row) * cols + col];
            }
        }
}

static void check_problem(int batch, int rows, int cols, int sms, int cluster_m, int cluster_n, int strip, int along_n)
{
    struct gemm_sched s = {.m_tiles = (rows + cluster_m - 1) / cluster_m,
                           .n_tiles = (cols + cluster_n - 1) / cluster_n,
                           .strip = strip,
                           .strip_along_n = along_n};
    s.tiles = batch * s.m_tiles * s.n_tiles;
    int clusters = sms / (cluster_m * cluster_n);
    if (clusters == 0)
        return;
    size_t total = (size_t)batch * (size_t)rows * (size_t)cols;
    unsigned char *taken = calloc(total, 1);
    count_tiles(&s, clusters, cluster_m, cluster_n, taken, rows, cols);
    for (size_t i = 0; i < total; ++i)
        EXPECT_THAT(taken[i] == 1, "batch=%d tiles=%dx%d sms=%d cluster=%dx%d strip=%d%c: tile %zu taken %d times",
                    batch, rows, cols, sms, cluster_m, cluster_n, strip, along_n ? 'n' : 'm', i, taken[i]);
    free(taken);
}

static const int clusters[][2] = {{1, 1}, {2, 1}, {1, 2}};

TEST(every_tile_once_for_every_sm_count)
{
    for (int sms = 1; sms <= 132; ++sms)
        for (int c = 0; c < 3; ++c)
            for (int along_n = 0; along_n < 2; ++along_n)
                check_problem(1 + sms % 3, 1 + sms * 7 % 23, 1 + sms * 5 % 19, sms, clusters[c][0], clusters[c][1],
                              1 + sms % 16, along_n);
}

TEST(every_tile_once_for_small_shapes)
{
    for (int batch = 1; batch <= 3; ++batch)
        for (int rows = 1; rows <= 9; ++rows)
            for (int cols = 1; cols <= 9; ++cols)
                for (int strip = 1; strip <= 16; strip += 3)
                    for (int c = 0; c < 3; ++c)
                        for (int along_n = 0; along_n < 2; ++along_n)
                            check_problem(batch, rows, cols, 7, clusters[c][0], clusters[c][1], strip, along_n);
}

TEST(tiles_in_flight_form_a_block)
{
    /* 12 consecutive tiles of a 12 x 12 grid in strips of 3 touch 3 rows and 4 columns: 7 operand tiles, not 13. */
    struct gemm_sched s = {.m_tiles = 12, .n_tiles = 12, .tiles = 144, .strip = 3};
    int max_row = 0, max_col = 0;
    for (int i = 0; i < 12; ++i) {
        struct gemm_tile t = gemm_sched_tile(&s, i);
        max_row = t.m > max_row ? t.m : max_row;
        max_col = t.n > max_col ? t.n : max_col;
    }
    EXPECT_INT(max_row, 2);
    EXPECT_INT(max_col, 3);
}
