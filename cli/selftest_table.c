/* The cases of `deepgemm selftest`: patterns in which {a|b} stands for each alternative (case_list_pattern). */
#include "selftest.h"

#include <string.h>

/* The weights of DeepSeek-V3 that bench measures too (bench/shapes/dense.txt). */
#define WEIGHTS "{n=2112 k=7168|n=576 k=7168|n=24576 k=1536|n=32768 k=512|n=7168 k=16384|n=4096 k=7168|n=7168 k=2048}"

static const struct {
    enum selftest_level level;
    const char *pattern;
} families[] = {
    /* Nothing to do, or almost. */
    {SELFTEST_QUICK, "gemm fp8 {m=0 n=64 k=128|m=64 n=0 k=128|m=1 n=1 k=1}"},
    {SELFTEST_QUICK, "gemm fp8 m=65 n=72 k=0 out={bf16|fp32} c={none|separate|d}"},
    /* Sizes one by one, then together. */
    {SELFTEST_QUICK, "gemm fp8 m={1|2|3|7|16|17|63|64|65|127|128|129} n=256 k=512"},
    {SELFTEST_NORMAL, "gemm fp8 m={4|8|9|33|96|191|192|193|255|256|257|300} n=576 k=640"},
    {SELFTEST_QUICK, "gemm fp8 m=65 n={1|2|7|8|9|64|100|127|128|129|136|300} k=256"},
    {SELFTEST_NORMAL, "gemm fp8 m=130 n={3|16|24|31|56|63|72|96|160|192|200|248|255|257|272} k=384"},
    {SELFTEST_QUICK, "gemm fp8 m=65 n=136 k={1|2|15|16|17|112|127|128|129|144|240|255|256|300|511|513|1000}"},
    {SELFTEST_NORMAL, "gemm fp8 m={5|77|131} n={1|71|257} k={1|130|300}"},
    {SELFTEST_NORMAL, "gemm fp8 m={1|129} n={130|248} k={144|272|1040} out={bf16|fp16|fp32}"},
    /* What B's partial blocks and long K do to the scales. */
    {SELFTEST_NORMAL, "gemm fp8 m=70 n=200 k={2048|7168|16384}"},
    {SELFTEST_NORMAL, "gemm fp8 m={1|200} n={2112|5000} k={1536|4000}"},
    /* Few rows: tiles of 8 to 128 of them, K split or not, one or two blocks on an SM. */
    {SELFTEST_QUICK, "gemm fp8 m={1|40} n=136 k={1100|2176} out={bf16|fp32} c={none|d}"},
    {SELFTEST_NORMAL, "gemm fp8 m={1|20|30|48|64|100} n={64|200|1100|1536|3072} k={640|3000|7168}"},
    {SELFTEST_NORMAL, "gemm fp8 m={3|33|90} n={577|2048} k={1000|7168} out={bf16|fp16|fp32} c={separate|d}"},
    {SELFTEST_NORMAL, "gemm fp8 m={2|17|80} n=576 k={640|7168} {sfa=ue8m0|sfb=ue8m0|sfa=ue8m0 sfb=ue8m0} "
                      "sfa_layout={mn|row|strided}"},
    {SELFTEST_NORMAL, "gemm fp8 m={5|50} n={72|200} k={512|4096} batch=6 num_sms={0|50}"},
    /* D's types and strides; C. */
    {SELFTEST_QUICK, "gemm fp8 m=129 n=200 k=384 out={fp16|fp32}"},
    {SELFTEST_QUICK, "gemm fp8 m=70 n=136 k=256 out={bf16|fp32} ldd={+1|+3|+8|+16}"},
    /* Odd widths in rows that TMA can address: where it clips. */
    {SELFTEST_QUICK, "gemm fp8 m=70 k=256 out={bf16|fp32} {n=1 ldd=+15|n=2 ldd=+14|n=3 ldd=+13|n=5 ldd=+11|n=7 ldd=+9|"
                     "n=9 ldd=+7|n=13 ldd=+3|n=15 ldd=+1|n=71 ldd=+9|n=129 ldd=+7}"},
    {SELFTEST_NORMAL, "gemm fp8 m=130 n=71 k=256 out={bf16|fp16|fp32} d_layout={col|step}"},
    {SELFTEST_QUICK, "gemm fp8 m={64|129} n={71|256} k=300 out={bf16|fp32} c={separate|d}"},
    {SELFTEST_NORMAL, "gemm fp8 m=129 n=264 k=384 out={bf16|fp16|fp32} c={separate|d} ldd={+3|+8}"},
    /* A and B: padding, transposed views, addresses that are not aligned. */
    {SELFTEST_QUICK, "gemm fp8 m=129 n=136 k=384 {lda=+16|ldb=+16|lda=+1|ldb=+7|lda=+16 ldb=+32 ldd=+8}"},
    /* K off 16 in rows that TMA can address: the padding behind it is NaN. */
    {SELFTEST_QUICK, "gemm fp8 m=70 n=136 {k=1 lda=+15 ldb=+15|k=100 lda=+12 ldb=+12|k=130 lda=+14 ldb=+30|"
                     "k=255 lda=+1 ldb=+17|k=300 lda=+4 ldb=+4}"},
    {SELFTEST_QUICK, "gemm fp8 {m=128 n=256 k=384|m=70 n=75 k=200} major={mk|kn|mn}"},
    {SELFTEST_NORMAL, "gemm fp8 m=144 n=272 k=512 major={mk|kn|mn} out={bf16|fp32} lda=+16 ldb=+16"},
    {SELFTEST_QUICK, "gemm fp8 m=128 n=128 k=256 shift={+1|+4|+8|+16}"},
    /* Scales: layouts, and packed UE8M0 on either side. */
    {SELFTEST_QUICK, "gemm fp8 m=130 n=300 k=640 sfa_layout={row|mn_unaligned|strided}"},
    {SELFTEST_QUICK, "gemm fp8 m=130 n=300 k=640 sfb_layout={mn|mn_unaligned|strided}"},
    {SELFTEST_QUICK, "gemm fp8 m=130 n=300 k={128|500|640|2176} {sfa=ue8m0|sfb=ue8m0|sfa=ue8m0 sfb=ue8m0}"},
    {SELFTEST_NORMAL, "gemm fp8 m={64|131} n=264 k=1100 {sfa=ue8m0|sfa=ue8m0 sfb=ue8m0} sfa_layout={row|mn_unaligned|"
                      "strided} sfb_layout={row|mn}"},
    {SELFTEST_NORMAL, "gemm fp8 m=200 n=576 k=7168 {sfa=ue8m0|sfb=ue8m0|sfa=ue8m0 sfb=ue8m0} out={bf16|fp32}"},
    /* Batches. */
    {SELFTEST_QUICK, "gemm fp8 m=65 n=136 k=256 batch={1|3} {c=none|c=d|sfa=ue8m0 sfb=ue8m0}"},
    {SELFTEST_QUICK, "gemm fp8 m=65 n=136 k=256 batch=3 {batch_layout=inner|broadcast=a|broadcast=b}"},
    {SELFTEST_NORMAL, "gemm fp8 m={1|70|256} n={72|512} k=512 batch=7 batch_layout={outer|inner} out={bf16|fp32}"},
    {SELFTEST_NORMAL, "gemm fp8 m=70 n=71 k=130 batch=5 broadcast={a|b} c={none|separate} lda=+3 ldd=+5"},
    {SELFTEST_NORMAL, "gemm fp8 m=129 n=130 k=256 batch=4 major={mk|kn|mn}"},
    {SELFTEST_NORMAL, "gemm fp8 m=40 n=128 k=128 batch=300"},
    /* Fewer SMs. */
    {SELFTEST_QUICK, "gemm fp8 m=512 n=1024 k=512 num_sms={1|7|77|131}"},
    {SELFTEST_NORMAL, "gemm fp8 m={1|300} n=2112 k=1024 num_sms={1|3|65} out={bf16|fp32}"},
    /* The shapes that bench measures. */
    {SELFTEST_QUICK, "gemm fp8 m={1|128|4096} {n=2112 k=7168|n=7168 k=2048}"},
    {SELFTEST_NORMAL, "gemm fp8 m={1|16|64|128|256|1024|4096|8192} " WEIGHTS},
    {SELFTEST_FULL, "gemm fp8 m={1|16|64|128|256|1024|4096|8192} " WEIGHTS " {out=fp32|sfa=ue8m0 sfb=ue8m0|c=d}"},
    /* More than 2^31 elements in D, in A. */
    {SELFTEST_FULL, "gemm fp8 {m=66000 n=33000 k=128|m=300000 n=64 k=7296}"},
    {SELFTEST_FULL, "gemm fp8 m={1|30|31|32|47|48|49|80|112|113|144|160|176|208|224|240} n={576|2112} k={512|7168}"},
    /* Groups of rows: drawn ones; then none, one, few, at the front, in the middle and behind; M off the alignment. */
    {SELFTEST_QUICK, "gemm fp8 {m=100|m=20 alignment=32} n={136|200} k=300 kind={contiguous|psum} groups=4"},
    {SELFTEST_QUICK, "gemm fp8 n=200 k=384 kind=contiguous groups=4 sizes=-128,100,0,-300,130,7 alignment={8|64|128} "
                     "tail={-20|600}"},
    {SELFTEST_QUICK, "gemm fp8 n=136 k=256 kind=psum groups=5 sizes=100,0,-3,130,7 alignment={8|128} "
                     "zero_padding={0|1} tail={-20|300}"},
    {SELFTEST_QUICK, "gemm fp8 n=72 k=128 groups=3 {kind=contiguous sizes=0|kind=psum sizes=0,-5} tail={0|300}"},
    {SELFTEST_NORMAL, "gemm fp8 n={130|264} k=384 kind={contiguous|psum} groups=6 sizes=1,0,200,64,129,8 "
                      "alignment={8|16|32|64|96|128|256} {out=bf16|out=fp32 c=d}"},
    {SELFTEST_NORMAL, "gemm fp8 n=264 k=256 kind=psum groups=7 sizes=-9,1,0,200,64,129,8 zero_padding=1 "
                      "alignment={8|16|32|64|96|128|256} tail={-1|0|1}"},
    {SELFTEST_NORMAL, "gemm fp8 n=130 k=256 kind=contiguous groups=4 sizes=-2000,1,-1,-1,-1,300 alignment={16|96|128} "
                      "tail={-100|5000}"},
    {SELFTEST_NORMAL, "gemm fp8 m=90 n={72|200|1024} k={64|100|128|300|7168} kind={contiguous|psum} groups=3"},
    {SELFTEST_NORMAL, "gemm fp8 m=90 n={1|9|24|71|136} k=256 kind={contiguous|psum} groups=3 out={bf16|fp32}"},
    {SELFTEST_NORMAL, "gemm fp8 m=50 n=136 k=300 kind={contiguous|psum zero_padding=1} groups=5 alignment=64 "
                      "out={bf16|fp16|fp32} c={none|separate|d}"},
    {SELFTEST_NORMAL, "gemm fp8 m={1|4|40} n=576 k=512 kind={contiguous|psum} groups=200 alignment={8|32}"},
    /* A batch whose entries are partly in use: none, one and all rows, and counts that are none. */
    {SELFTEST_QUICK, "gemm fp8 m={1|8|65|192} n=200 k=256 kind=masked groups=5"},
    {SELFTEST_QUICK,
     "gemm fp8 m=65 n=136 k=300 kind=masked groups=4 sizes={0|65|-1,70,3,0|-2147483648,2147483647,0,64} "
     "expected_m={0|20}"},
    {SELFTEST_NORMAL, "gemm fp8 m={1|8|65|192} n={71|129|264} k={64|100|128|300|7168} kind=masked groups=6"},
    {SELFTEST_NORMAL, "gemm fp8 m={1|8|65|192} n={1|136|520} k=384 kind=masked groups=6 sizes={0|192|1,0,193,0,0,64}"},
    {SELFTEST_NORMAL, "gemm fp8 m=100 n=136 k=300 kind=masked groups=5 out={bf16|fp16|fp32} c={none|separate|d}"},
    {SELFTEST_NORMAL, "gemm fp8 m=64 n=576 k=1024 kind=masked groups={1|64|300} mean=4 expected_m={0|4|64|100000}"},
    /* Views, scales and SMs of groups. */
    {SELFTEST_QUICK, "gemm fp8 m=60 n=136 k=640 kind={contiguous|masked} groups=3 {recipe=1,1,128|sfa=ue8m0 sfb=ue8m0|"
                     "recipe=1,1,128 sfb=ue8m0|layout_step=+3|shift=+1}"},
    {SELFTEST_NORMAL, "gemm fp8 m=60 n=200 k=640 kind={contiguous|psum|masked} groups=4 {major=mk|major=kn|major=mn|"
                      "lda=+16 ldb=+32 ldd=+8|lda=+1|ldb=+7|ldd=+1|shift=+4|shift=+16|d_layout=col|d_layout=step}"},
    {SELFTEST_NORMAL, "gemm fp8 m=60 n=200 k={640|1100} kind={contiguous|psum|masked} groups=4 {sfa=ue8m0|sfb=ue8m0|"
                      "sfa=ue8m0 sfb=ue8m0} recipe={1,128,128|1,1,128} sfa_layout={mn|row}"},
    {SELFTEST_NORMAL, "gemm fp8 m=60 n=200 k=640 kind={contiguous|psum|masked} groups=4 {sfa_layout=mn_unaligned|"
                      "sfa_layout=strided sfb_layout=mn|sfb_layout=strided recipe=1,1,128}"},
    {SELFTEST_NORMAL, "gemm fp8 m=300 n=520 k=640 kind={contiguous|psum|masked} groups=5 num_sms={1|7|131}"},
    /* Groups of K: whole groups of 128, odd ones, none; more and less than there is room for. */
    {SELFTEST_QUICK, "gemm fp8 m=65 n=136 k=200 kind=k_grouped groups=3 out=fp32 flat={0|1} c={none|separate|d}"},
    {SELFTEST_QUICK, "gemm fp8 m=65 n=136 kind=k_grouped groups=5 out=fp32 sizes=100,0,-3,1,300 flat={0|1} "
                     "tail={-120|0|120}"},
    {SELFTEST_NORMAL,
     "gemm fp8 m={1|64|200} n={71|256} kind=k_grouped groups=6 sizes={128,256,0,384|0,100,1,0,300,16|0} "
     "flat={0|1} out=fp32 c={none|d}"},
    {SELFTEST_NORMAL, "gemm fp8 m=130 n=264 k=512 kind=k_grouped groups=4 out={bf16|fp16|fp32} major={kk|mk|kn|mn} "
                      "c={none|separate|d}"},
    {SELFTEST_NORMAL, "gemm fp8 m=130 n=264 k=512 kind=k_grouped groups=4 out=fp32 {lda=+16 ldb=+32|lda=+1|ldd=+4|"
                      "sfa_layout=row sfb_layout=mn|sfa_layout=mn_unaligned|sfb_layout=strided|layout_step=+1|shift=+1|"
                      "num_sms=7|shift=+16 flat=1}"},
    {SELFTEST_NORMAL, "gemm fp8 m=256 n=512 k=7168 kind=k_grouped groups={1|3} out=fp32 flat={0|1}"},
    /* Shapes that bench measures, smaller ones first. */
    {SELFTEST_NORMAL,
     "gemm fp8 {kind=contiguous m=256 groups=16|kind=psum m=200 groups=16 alignment=64|kind=masked m=512 "
     "mean=192 groups=16|kind=masked m=1024 mean=20 groups=6} {n=4096 k=7168|n=7168 k=2048}"},
    {SELFTEST_NORMAL, "gemm fp8 m=4096 n=7168 k=1024 kind=k_grouped groups=4 out=fp32 c=d flat={0|1}"},
    {SELFTEST_FULL, "gemm fp8 {kind=contiguous m=4096 groups=8|kind=masked m=4096 mean=192 groups=32} {n=6144 k=7168|"
                    "n=7168 k=3072} {sfa=fp32|sfa=ue8m0 sfb=ue8m0}"},
    /* Quantisation: the three granularities, types, layouts, tails. */
    {SELFTEST_QUICK, "quantize fp8 m={1|70} k={1|128|300} in={bf16|fp16|fp32} gran={1,128|128,128} sf={fp32|ue8m0}"},
    {SELFTEST_QUICK, "quantize fp8 m={1|300} k=70 gran=128,1 in={bf16|fp32}"},
    {SELFTEST_NORMAL, "quantize fp8 m=300 k=1100 in={bf16|fp32} gran={1,128|128,128|128,1} sf={fp32|ue8m0} "
                      "sf_layout={mn|row|mn_unaligned|strided}"},
    {SELFTEST_NORMAL, "quantize fp8 m=130 k=640 in={bf16|fp16|fp32} gran={1,128|128,128|128,1} round=1 lda={+0|+3}"},
    {SELFTEST_NORMAL, "quantize fp8 m=65 k=300 batch={1|5} gran={1,128|128,128} sf={fp32|ue8m0} shift={+0|+1}"},
    {SELFTEST_NORMAL, "quantize fp8 {m=4096 k=7168|m=7168 k=2048} gran={1,128|128,128} sf={fp32|ue8m0}"},
    {SELFTEST_QUICK, "quantize fp8 {m=0 k=128|m=128 k=0}"},
    /* Scale transforms. */
    {SELFTEST_QUICK, "transform scale m={1|70|256} k={128|640|1100} {from=fp32 to=ue8m0|from=fp32 to=ue8m0 round=1|"
                     "from=ue8m0 to=fp32|from=fp32 to=fp32}"},
    {SELFTEST_NORMAL, "transform scale m=300 k=2000 gran={1,128|128,128} {from=fp32 to=ue8m0|from=ue8m0 to=fp32|"
                      "from=fp32 to=fp32} sf_layout={mn|row|mn_unaligned|strided} batch={0|3}"},
};

/* Families overlap; each case is worth one run. */
static void drop_repeated(struct case_list *list)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < list->count; ++i) {
        int64_t earlier = 0;
        while (earlier < kept && memcmp(&list->items[earlier], &list->items[i], sizeof(list->items[i])) != 0)
            ++earlier;
        if (earlier == kept)
            list->items[kept++] = list->items[i];
    }
    list->count = kept;
}

bool selftest_cases(struct case_list *list, enum selftest_level level, int64_t seed)
{
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); ++i)
        if (families[i].level <= level && !case_list_pattern(list, families[i].pattern))
            return false;
    drop_repeated(list);
    for (int64_t i = 0; i < list->count; ++i)
        list->items[i].seed = seed;
    return true;
}
