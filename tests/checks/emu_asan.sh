# The emulated GPU and the kernels on it again, under AddressSanitizer and UndefinedBehaviorSanitizer: three seeds.
. tests/checks/lib.sh
expect "the build" make -s -j2 BUILD="$BUILD-asan" CC="$CC" SANITIZE=address,undefined DEBUG=1 CFLAGS="-g -O1" \
    "$BUILD-asan/emu/emu" || finish emu_asan
export EMU_CXXFLAGS="-O1 -g -fsanitize=address,undefined -fno-omit-frame-pointer"
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
exec "$BUILD-asan/emu/emu" --suite --seeds 3 cases small
