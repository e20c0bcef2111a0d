#!/bin/sh
# The program as its user meets it: exit codes, sentences, files. Needs no GPU. Run from the root of the tree:
#     sh tests/cli/run.sh build/deepgemm
program=$1
work=$(mktemp -d "${TMPDIR:-/tmp}/deepgemm_cli.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
export DG_JIT_CACHE_DIR="$work/cache" OMP_NUM_THREADS=2
passed=0
failed=0

# check NAME WANTED_CODE WORDS ARGUMENTS...: the exit code, and words that stdout or stderr must have.
check() {
    name=$1 code=$2 words=$3
    shift 3
    "$program" "$@" >"$work/out" 2>&1 </dev/null
    got=$?
    if [ "$got" -ne "$code" ]; then
        echo "FAIL $name: exit code $got, wanted $code; it said: $(head -c 400 "$work/out")"
        failed=$((failed + 1))
    elif ! grep -q -e "$words" "$work/out"; then
        echo "FAIL $name: no \"$words\" in: $(head -c 400 "$work/out")"
        failed=$((failed + 1))
    else
        passed=$((passed + 1))
    fi
}

# same NAME GOT WANTED
same() {
    if [ "$2" = "$3" ]; then
        passed=$((passed + 1))
    else
        echo "FAIL $1: \"$2\", wanted \"$3\""
        failed=$((failed + 1))
    fi
}

# ---- Help and wrong usage ----
check 'no argument' 2 'Usage: deepgemm COMMAND'
check 'help' 0 'precompile' help
check '--help' 0 'Exit codes' --help
check '--version' 0 '^0\.1\.0$' --version
check 'help cases' 0 'gemm fp8' help cases
for command in info matmul selftest bench precompile tune; do
    check "$command --help" 0 "Usage: deepgemm $command" $command --help
    check "help $command" 0 "Usage: deepgemm $command" help $command
    check "$command, unknown option" 2 "there is no option --nonsense; there are --help" $command --nonsense
done
check 'unknown command' 2 'there is no command "multiply"; there are info, matmul' multiply
check 'option without value' 2 'wants a value' matmul --out
check 'option with a value it does not take' 2 'takes no value' matmul --check=yes
check 'bad device' 2 'is no device' matmul --random 1,1,1 --device tpu
check 'bad random shape' 2 'has 2 numbers, not 3' matmul --random 1,1
check 'matmul without operands' 2 'give X and W' matmul
check 'selftest with an argument' 2 'use --filter' selftest gemm
check 'bench, bad case' 2 'has no key "q"' bench --device cpu gemm fp8 m=1 n=1 k=1 q=1
check 'bench, bad baseline' 2 'cublaslt or none' bench --baseline mkl
check 'bench --chain without a GPU' 1 '--chain measures GPU calls' \
    bench --chain --device cpu gemm fp8 m=1 n=128 k=128 gemm fp8 m=1 n=128 k=128
check 'bench --host and --chain' 2 '--chain has no effect with --host' bench --host --chain
check 'bench --host, rounds' 2 '--rounds has no effect with --host' bench --host --rounds 3
check 'bench --chain, CSV' 2 '--csv has no effect with --chain' bench --chain --csv "$work/chain.csv"
for option in '--rounds 3' '--reps 3' '--baseline none' '--timer graph'; do
    check "bench --sustained $option" 2 "${option% *} has no effect with --sustained" bench $option --sustained
done
check 'bench --baseline on the CPU' 2 '--baseline has no effect on the CPU' bench --device cpu --baseline cublaslt
check 'bench --timer on the CPU' 2 '--timer has no effect on the CPU' bench --device cpu --timer best
for option in --favour=bench/shapes/chain.txt --steps=3 --out="$work"; do
    check "tune $option" 2 "${option%=*} has no effect without --from" tune $option gemm fp8 m=1 n=128 k=128
done
for option in --csv=no.csv --kernel=1d2d --tile=128x96 --variant=x=tests/cli/run.sh --prune=2 --rounds=2 --reps=2 \
    --device=cpu; do
    check "tune --from, $option" 2 "${option%%=*} has no effect with --from" tune --from tests/cli/run.sh $option
done
check 'tune, a kernel and a tile' 2 '--kernel has no effect on a --tile' \
    tune --kernel skinny --tile 128x96 gemm fp8 m=1 n=128 k=128
check 'tune without a case' 2 'nothing to tune' tune
check 'tune, no such kernel' 2 'wanted is 1d2d, skinny or choice' tune --kernel simple
check 'tune, no such tile' 2 '"128" is no tile' tune --tile 128
check 'tune, a tile that does not exist' 2 '"128x0" is no tile' tune --tile 128x0
check 'tune, a tile and more' 2 '"128x96junk" is no tile' tune --tile 128x96junk
check 'tune, a variant of another kernel' 2 'not one of the --kernel' \
    tune --kernel 1d2d --tile s16x2x4x1 --variant x=tests/cli/run.sh gemm fp8 m=1 n=128 k=128
check 'tune, a variant without a kernel' 2 'wants one --kernel' \
    tune --variant x=tests/cli/run.sh gemm fp8 m=1 n=128 k=128
many=$(for i in 1 2 3 4 5 6 7 8 9 10 11; do echo "--variant $i=tests/cli/run.sh"; done)
check 'tune, too many configurations' 2 '11 variants of 384 tiles are more than 4096' \
    tune --device cpu --kernel skinny $many gemm fp8 m=1 n=128 k=128
many=$(awk 'BEGIN { for (i = 0; i < 1025; ++i) print "--tile 128x96" }')
check 'tune, too many tiles' 2 'more than 1024 tiles' tune --device cpu $many gemm fp8 m=1 n=128 k=128
check 'tune without a GPU' 1 'timed on a GPU' tune --device cpu gemm fp8 m=1 n=128 k=128
check 'tune, both at once' 2 'one after the other' tune --from tests/cli/run.sh gemm fp8 m=1 n=128 k=128
check 'tune, no measurements' 1 'run.sh:1: is no line' tune --from tests/cli/run.sh
check 'precompile without a case' 2 'nothing to compile' precompile

# ---- info ----
check 'info' 0 '^NVRTC ' info
check 'info names the cache' 0 "^cache  *$work/cache" info
check 'info --plan for a target' 0 '^row  *sm90_fp8_gemm' info --plan 'gemm fp8 m=4096 n=7168 k=2048' --target h200
check 'info --plan tells what was passed over' 0 '^passed over  sm90_fp8_gemm' \
    info --plan 'gemm fp8 m=64 n=7168 k=2048 major=mk' --target arch=90,sms=132
check 'info --plan on the CPU' 0 '^row  *gemm_ref' info --plan 'gemm fp8 m=4 n=8 k=16' --device cpu
check 'info --plan of groups' 0 '^row  *[a-z]' \
    info --plan 'gemm fp8 m=256 n=7168 k=2048 kind=contiguous groups=8' --target h200
check 'info --plan, bad case' 2 'lacks k=' info --plan 'gemm fp8 m=1 n=1' --target h200
check 'info --plan, bad target' 2 'b300' info --plan 'gemm fp8 m=1 n=1 k=1' --target b300
check 'info --target alone' 2 'goes with --plan' info --target h200

# ---- matmul ----
for out in bf16 fp16 fp32; do
    for sf in fp32 ue8m0; do
        check "matmul --out $out --sf $sf" 0 'PASS' \
            matmul --random 33,140,300 --device cpu --check --out $out --sf $sf -o "$work/$out.npy"
    done
done
check 'matmul from files' 0 'X float16, W float32' matmul "$work/fp16.npy" "$work/bf16.npy" --device cpu --check
same 'a bf16 result is written as float32' "$(dd if="$work/bf16.npy" bs=1 skip=10 count=16 2>/dev/null)" "{'descr': '<f4',"
same 'the data begins at a multiple of 64' "$(($(wc -c <"$work/fp32.npy") - 33 * 140 * 4))" 128
check 'matmul, no such file' 1 'No such file' matmul "$work/none.npy" "$work/fp32.npy"
check 'matmul, not a file of that kind' 1 'is not a .npy file' matmul tests/test.h "$work/fp32.npy"
check 'matmul, no name in .safetensors' 1 'name one as' matmul "$work/fp32.npy" "$work/w.safetensors"
check 'one number' 0 'PASS' matmul --random 1,1,128 --seed 34 --device cpu --check
check 'matmul, output cannot be written' 1 'No such file' matmul --random 1,1,1 --device cpu -o "$work/no/y.npy"

# X = ones [2, 4]; W = codes of 1.0 [3, 4] with the scale 2.0: Y is 8 everywhere.
{
    printf '\223NUMPY\001\000\072\000'
    printf "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4)}\n"
    for i in 1 2 3 4 5 6 7 8; do printf '\000\000\200\077'; done
} >"$work/x.npy"
check 'matmul, K differs' 1 'their second sizes, K, differ' matmul "$work/x.npy" "$work/fp32.npy" --device cpu
header='{"l.weight":{"dtype":"F8_E4M3","shape":[3,4],"data_offsets":[0,12]},"l.weight_scale_inv":{"dtype":"F32","shape":[1,1],"data_offsets":[12,16]},"m.weight":{"dtype":"F8_E4M3","shape":[3,4],"data_offsets":[0,12]},"n":{"dtype":"F8_E4M3","shape":[3,4],"data_offsets":[0,12]}}'
{
    printf "\\$(printf %o $((${#header} % 256)))\\$(printf %o $((${#header} / 256)))\000\000\000\000\000\000%s" "$header"
    for i in 1 2 3 4 5 6 7 8 9 10 11 12; do printf '\070'; done
    printf '\000\000\000\100'
} >"$work/w.safetensors"
if "$program" matmul "$work/x.npy" "$work/w.safetensors:l.weight" --device cpu 2>&1 | grep -q libcjson-dev; then
    check 'safetensors without cJSON' 1 'libcjson-dev' matmul "$work/x.npy" "$work/w.safetensors:l.weight"
else
    check 'FP8 weights with their scales' 0 'W float8_e4m3 with its scales' \
        matmul "$work/x.npy" "$work/w.safetensors:l.weight" --device cpu --check -o "$work/y.npy"
    same 'their product' "$(od -A n -t f4 -j 128 -w24 "$work/y.npy" | tr -s ' ')" ' 8 8 8 8 8 8'
    check 'FP8 weights without scales' 1 'has no tensor m.weight_scale_inv' \
        matmul "$work/x.npy" "$work/w.safetensors:m.weight" --device cpu
    check 'FP8 weights by another name' 1 'must end in ".weight"' \
        matmul "$work/x.npy" "$work/w.safetensors:n" --device cpu
    check 'FP8 activations' 1 'X is FP8 without scales' \
        matmul "$work/w.safetensors:l.weight" "$work/w.safetensors:l.weight" --device cpu
fi
{
    head -c $(($(wc -c <"$work/x.npy") - 4)) "$work/x.npy"
    printf '\000\000\200\177'
} >"$work/inf.npy"
check 'matmul --check with an infinity' 1 'X holds inf at \[1, 3\]' matmul "$work/inf.npy" "$work/x.npy" --device cpu --check
for bytes in 5 60 90; do
    head -c $bytes "$work/x.npy" >"$work/cut.npy"
    check "a .npy of $bytes bytes" 1 'cut.npy' matmul "$work/cut.npy" "$work/x.npy" --device cpu
done

if [ -e /dev/full ]; then
    "$program" help >/dev/full 2>"$work/out"
    same 'a full standard output' "$? $(cat "$work/out")" '1 deepgemm: standard output could not be written'
fi

check 'help, too much' 2 'takes one topic' help info junk
check 'version, too much' 2 'takes no argument' --version junk
check 'an ambiguous option' 2 'could be --output or --out' matmul --o x a b
check 'an option without a value, given one' 2 '\-\-check takes no value' matmul --check=1 a b
check 'info, target and device' 2 'exclude each other' info --plan 'gemm fp8 m=1 n=1 k=1' --target h200 --device cpu
check 'info, twice' 2 'come once each' info --target h200 --target h100
check 'precompile, target and device' 2 'exclude each other' precompile --nk 1,1 --target h200 --device cuda:3
check 'a target key twice' 2 'arch comes twice' info --plan 'gemm fp8 m=1 n=1 k=1' --target sms=3,arch=90,arch=90
check 'output is a directory' 1 'is a directory' matmul --random 1,1,1 --device cpu -o "$work"
check 'output without a name' 1 'has no name' matmul --random 1,1,1 --device cpu -o ''
check 'a case larger than memory' 1 'larger than any memory' \
    bench 'quantize fp8 m=1073741824 k=1073741824 batch=16' --device cpu
check 'shapes, a directory' 2 'cannot be read: Is a directory' bench --device cpu --shapes "$work"
printf '# nothing\n\n' >"$work/none.txt"
check 'shapes, no case' 2 'none.txt holds no case' bench --device cpu --shapes "$work/none.txt"
{
    printf '# %2000s gemm fp8 m=1 n=1 k=1\n' long
    echo 'gemm fp8 m=1 n=8 k=128'
} >"$work/long.txt"
check 'shapes, a long comment' 0 '^1 passed' bench --device cpu --reps 1 --shapes "$work/long.txt"
check 'selftest, what needs a GPU' 1 'needs a GPU' selftest --device cpu --filter PDL
if [ -e /dev/full ]; then
    check 'bench --csv, a full disk' 1 'could not be written: No space' \
        bench --device cpu --reps 1 --csv /dev/full 'gemm fp8 m=1 n=8 k=128'
fi
"$program" bench --device cpu --reps 1 --csv "$work/closed.csv" 'gemm fp8 m=1 n=8 k=128' >&- 2>/dev/null
same 'a closed standard output' "$? $(head -c 7 "$work/closed.csv")" '1 case,m,'

# ---- tune, from measurements ----
# The tile that is chosen is the slower one, until other constants are found. The third line repeats the second.
plain='"gemm fp8 m=4096 n=4096 k=7168 out=bf16 recipe=1,128,128"'
line="built-in,sm90_fp8_gemm_1d2d,4096,4096,7168,%s,166.00,1,block_m=%s block_n=%s cluster_m=1 cluster_n=1,$plain\\n"
printf "$line$line$line" 190.00 128 128 300.00 64 16 180.00 64 16 >"$work/tune.csv"
check 'tune, the constants in use' 0 'within 5 % of the best for 0 of 1 problems' tune --from "$work/tune.csv" --steps 0
check 'tune, which was better' 0 '128x128c1x1 takes 190.00 us, 64x16c1x1 180.00' tune --from "$work/tune.csv" --steps 0
small='"gemm fp8 m=8 n=128 k=128 out=bf16 recipe=1,128,128"'
echo "x,sm90_fp8_gemm_1d2d,8,128,128,9.0,1.0,1,garbage,$small" >"$work/bad.csv"
check 'tune, no tile' 1 'has no tile of sm90_fp8_gemm_1d2d' tune --from "$work/bad.csv"
echo "x,sm90_fp8_gemm_skinny,8,128,128,nan,1.0,1,block_m=8 step=1 splits=1 blocks_per_sm=1,$small" >"$work/bad.csv"
check 'tune, no time' 1 'is no line that a sweep' tune --from "$work/bad.csv"
echo "x,gemm_simple,8,128,128,9.0,1.0,1,block_m=8,$small" >"$work/bad.csv"
check 'tune, a kernel without a model' 1 'no measurement' tune --from "$work/bad.csv"
sed 's/out=bf16/out=fp32/' "$work/tune.csv" >"$work/bad.csv"
check 'tune, a case that is not plain' 1 'bad.csv:1: is of a case that has more than m, n and k.*out=fp32' \
    tune --from "$work/bad.csv"
sed 's/,"gemm.*//' "$work/tune.csv" >"$work/bad.csv"
check 'tune, a line without its case' 1 'is no line that a sweep' tune --from "$work/bad.csv"
check 'tune, a folder' 1 'cannot be read: Is a directory' tune --from "$work"
check 'tune, a search' 0 'fitted: the choice' tune --from "$work/tune.csv" --steps 50 --out "$work"
same 'tune --out, as many constants as before' "$(cat "$work"/gemm_*_costs.def | grep -c '^COST')" \
    "$(cat src/plan/gemm_*_costs.def | grep -c '^COST')"
same 'tune --out, from what' "$(grep -c "2 measurements of 1 problems" "$work"/gemm_sm90_costs.def)" 1
"$program" tune --from "$work/tune.csv" --steps 0 --out "$work" >/dev/null
same 'tune --out, nothing fitted' "$(grep -c 'measurements' "$work"/gemm_sm90_costs.def)" 0
check 'tune --out, no such folder' 1 'cannot be written: No such file' \
    tune --from "$work/tune.csv" --steps 0 --out "$work/none"
check 'cases by pattern' 0 '^4 passed' bench --device cpu --reps 1 'gemm fp8 m={1|2} n={8|16} k=128'

# ---- selftest and bench on the CPU ----
check 'selftest' 0 '^[1-9][0-9]* passed, 0 failed$' selftest --device cpu --quick --filter 'm=65 '
same 'the count is the last line' "$(tail -n 1 "$work/out" | cut -d ' ' -f 2-)" 'passed, 0 failed'
check 'selftest, nothing chosen' 1 'no case and no check has "xyz"' selftest --device cpu --filter xyz
check 'selftest, groups' 0 '^[1-9][0-9]* passed, 0 failed$' selftest --device cpu --quick --filter 'kind=psum'
check 'selftest, sizes of groups changed' 0 '^1 passed, 0 failed$' selftest --device cpu --filter 'sizes of groups'
check 'selftest --list' 0 '^quantize fp8' selftest --device cpu --list
check 'bench' 0 '^2 passed, 0 failed$' \
    bench --device cpu --csv "$work/b.csv" --reps 2 gemm fp8 m=4 n=8 k=128 quantize fp8 m=4 k=128
check 'bench, groups' 0 'geometric mean of beside_ns / ours, masked: [0-9.]* over 1' bench --device cpu --reps 1 \
    --csv "$work/g.csv" 'gemm fp8 m=9 n=8 k=128 kind=masked groups=3 mean=4 beside_ns=1000' \
    gemm fp8 n=8 k=128 kind=contiguous groups=3 sizes=-128,9,0,130 tail=-7
same 'bench --csv, beside' "$(sed -n 2p "$work/g.csv" | grep -c ',1.000,[0-9.]*$')" 1
check 'bench, bad groups' 2 'm and sizes exclude each other' bench --device cpu gemm fp8 m=1 n=1 k=1 kind=psum groups=1 sizes=1
check 'help cases tells of groups' 0 '^  k_grouped  *k is a group' help cases
same 'bench --csv' "$(wc -l <"$work/b.csv")" 3
check 'bench without a case on the CPU' 0 '^4 passed, 0 failed$' bench --device cpu --rounds 1 --reps 1
check 'bench --shapes, bad line' 2 'test.h:1: ' bench --device cpu --shapes tests/test.h

# ---- precompile ----
check 'precompile --pack, another file' 1 'is in the way of the pack' \
    precompile --nk 128,128 --m 1 --target h200 --pack tests/test.h
check 'precompile --pack, no folder' 1 'cannot be written: No such file' \
    precompile --nk 128,128 --m 1 --target h200 --pack "$work/no/such.pack"

# ---- precompile, where there is a compiler ----
if "$program" info | grep -q '^NVRTC  *none'; then
    check 'precompile without NVRTC' 1 'NVRTC' precompile --nk 576,7168 --m 1:64 --target h200
else
    check 'precompile' 0 '^[1-9][0-9]* compiled, 0 cached' precompile --nk 576,7168 --m 1:64 --target h200
    DG_JIT_CACHE_DIR="$work/x.npy/below" check 'precompile, nowhere to store' 1 'could not be stored' \
        precompile --nk 128,128 --m 1 --target h200
    check 'precompile again' 0 '^0 compiled, [1-9]' precompile --nk 576,7168 --m 1:64 --target h200

    # Other operations; --nk stands for quantising too, and --m for strides of the largest M.
    check 'precompile of other operations' 0 '^3 compiled, 0 cached' \
        precompile quantize fp8 m=5 k=256 in=fp32 transform scale m=5 k=256 \
        'transform scale m=5 k=256 from=ue8m0 to=fp32' --target h200
    check 'precompile, what --nk quantises' 0 '^0 compiled, 1 cached' \
        precompile quantize fp8 m=64 k=7168 --target h200
    check 'precompile, scales of 128 rows' 0 '^1 compiled, 0 cached' \
        precompile quantize fp8 m=5 k=256 gran=128,128 sf=ue8m0 --m 1:300 --target h200
    check 'precompile, columns of D' 0 'm=1..64: [1-9][0-9]* compiled' \
        precompile gemm fp8 m=1 n=128 k=256 d_layout=col --m 1:64 --target h200
    for kind in contiguous psum masked k_grouped; do
        check "precompile of groups, $kind" 0 'm=1..600: [0-9]* compiled, [0-9]* cached' \
            precompile gemm fp8 m=100 n=128 k=256 kind=$kind groups=4 --m 1:600 --target h200
        check "precompile of groups, $kind, other sizes" 0 '^0 compiled, [1-9]' \
            precompile gemm fp8 m=30 n=128 k=256 kind=$kind groups=4 seed=3 --target h200
    done
    check 'precompile, bad granularity' 1 'gran_mn x gran_k is 3 x 3' \
        precompile quantize fp8 m=1 k=3 gran=3,3 --target h200

    # A pack: made of several cases, used where nothing can be compiled or stored.
    pack="$work/kernels.pack"
    check 'precompile --pack' 0 "$pack: [1-9][0-9]* kernels, [1-9][0-9]* bytes" \
        precompile --nk 576,7168 --nk 128,128 --m 1:64 --target h200 --pack "$pack"
    same 'the pack is the last line' "$(tail -n 1 "$work/out" | sed 's/.*, //')" "$(wc -c <"$pack") bytes"
    kernels=$(tail -n 1 "$work/out" | sed 's/.*: \([0-9]*\) kernels.*/\1/')
    "$program" precompile --nk 128,128 --m 1:64 --target h200 --pack "$work/b.pack" >/dev/null
    check 'a pack grows' 0 "b.pack: $kernels kernels" \
        precompile --nk 576,7168 --m 1:64 --target h200 --pack "$work/b.pack"
    same 'the same kernels, the same bytes' "$(cksum <"$work/b.pack")" "$(cksum <"$pack")"
    export DG_NVRTC_PATH=/nowhere DG_JIT_CACHE_DIR=/proc/nowhere
    check 'without compiler, cache and pack' 1 'no NVRTC' precompile --nk 576,7168 --m 1:64 --target h200
    export DG_PACK="$work/none.pack:$pack"
    check 'a pack is enough' 0 '^0 compiled, [1-9]' \
        precompile --nk 576,7168 --m 1:64 --target h200 --pack "$work/c.pack"
    check 'a pack quantises' 0 '^0 compiled, 1 cached' \
        precompile quantize fp8 m=64 k=7168 --target h200 --pack "$work/c.pack"
    check 'what it lacks is told' 1 'no pack in DG_PACK has a sound kernel sm90' precompile --nk 576,7168 --m 4096 --target h200
    check 'info tells of packs' 0 "^pack  *$pack, $kernels kernels" info
    check 'info tells of a missing pack' 0 "^pack  *none: .*none.pack cannot be used: No such file" info
    head -c $(($(wc -c <"$pack") - 1)) "$pack" >"$work/damaged.pack"
    printf '\377' >>"$work/damaged.pack"
    DG_PACK="$work/damaged.pack" check 'info tells of a damaged kernel' 0 \
        "^pack  *$work/damaged.pack, $((kernels - 1)) kernels, [0-9]* KiB; .*1 of the $kernels kernels in .* is damaged$" info
fi

echo "test_program: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
