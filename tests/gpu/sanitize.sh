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
    for rows in 129 40; do # either kernel's tiles
        echo "compute-sanitizer --tool $check, cases with m=$rows"
        "$tool" --tool "$check" --error-exitcode 9 "$program" selftest --device cuda --quick --filter "m=$rows" || code=1
    done
done
exit $code
