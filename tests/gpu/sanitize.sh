#!/bin/sh
# sanitize.sh PROGRAM: a part of the selftest under compute-sanitizer's memcheck and racecheck, where the tool is there:
# edges in M, N and K, packed scales, both stores, and a cluster's barriers; the tool makes kernels a hundred times slower.
program=$1
tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [ -z "$tool" ]; then
    echo "SKIP compute-sanitizer: it is neither in PATH nor in /usr/local/cuda/bin"
    exit
fi
code=0
for check in memcheck racecheck; do
    # sm90_fp8_gemm_1d2d with many tiles, either kernel's edges, groups of rows
    for cases in num_sms=131 m=129 m=40 "kind=masked groups=5" "tail=600 alignment=8" "tail=-20 alignment=8 zero"; do
        echo "compute-sanitizer --tool $check, cases with $cases"
        "$tool" --tool "$check" --error-exitcode 9 "$program" selftest --device cuda --quick --filter "$cases" || code=1
    done
done
exit $code
