# The unit tests again, as a debug build under AddressSanitizer and UndefinedBehaviorSanitizer.
. tests/checks/lib.sh
tests="core sched groups plan cpu quantize api driver cuda memory gemm scale jit_cache jit_pack cli judge"
programs=$(for t in $tests; do echo "$BUILD-asan/tests/test_$t"; done)
expect "the build" make -s -j2 BUILD="$BUILD-asan" CC="$CC" SANITIZE=address,undefined DEBUG=1 CFLAGS="-g -O1" $programs
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
for t in $tests; do
    expect "$t" "$BUILD-asan/tests/test_$t"
done
finish sanitizers
