#!/bin/sh
# run.sh units NAME... -- CHECK...: run the unit test programs, then tests/checks/CHECK.sh each, and count. Every one of
# them ends with a line "NAME: P passed, F failed"; one that does not has crashed and counts as a failure. The last line
# is the sum. Called by the Makefile, from the root of the tree.
passed=0
failed=0
export DEPS="$BUILD/deps" CC
export CUDA_HOME="$PWD/$DEPS/cuda/nvidia/cu13"
nvrtc_12="$PWD/$DEPS/nvrtc-12/nvidia/cuda_nvrtc/lib"
nvrtc_13="$PWD/$DEPS/nvrtc-13/nvidia/cu13/lib"
export DG_NVRTC_PATH="$nvrtc_13" DG_TEST_NVRTC="$nvrtc_12:$nvrtc_13"
mkdir -p "$BUILD/logs"

# run NAME COMMAND...
run() {
    name=$1
    shift
    log="$BUILD/logs/$name.log"
    "$@" >"$log" 2>&1
    code=$?
    grep -E '^(FAIL|SKIP|emulation:|mutants:)' "$log"
    line=$(grep -E ': [0-9]+ passed, [0-9]+ failed$' "$log" | tail -1)
    if [ -z "$line" ]; then
        echo "FAIL $name: no count, exit code $code; the end of $log:"
        tail -5 "$log"
        line="$name: 0 passed, 1 failed"
    fi
    if [ "$code" -ne 0 ] && [ "${line##*, }" = "0 failed" ]; then
        echo "FAIL $name: nothing failed, and yet exit code $code; the end of $log:"
        tail -5 "$log"
        line="$name: $(echo "${line##*: }" | cut -d ' ' -f 1) passed, 1 failed"
    fi
    echo "$line"
    counts=${line##*: }
    passed=$((passed + ${counts%% passed*}))
    counts=${counts##*passed, }
    failed=$((failed + ${counts%% failed*}))
}

shift
while [ "$1" != -- ]; do
    if [ "$1" = compile ]; then # with the newest compiler of each major version
        run compile-nvrtc-12 env DG_NVRTC_PATH="$nvrtc_12" "$BUILD/tests/test_compile"
        run compile-nvrtc-13 "$BUILD/tests/test_compile"
    else
        run "$1" "$BUILD/tests/test_$1"
    fi
    shift
done
shift
for check in "$@"; do
    run "$check" sh "tests/checks/$check.sh"
done
echo
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
