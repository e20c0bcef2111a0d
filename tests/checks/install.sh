# What `make install` puts in place is complete: the example builds against it through pkg-config, and runs.
. tests/checks/lib.sh
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export PKG_CONFIG_PATH="$place/usr/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$place"
expect "make install" make -s BUILD="$BUILD" CC="$CC" DESTDIR="$place" PREFIX=/usr install
expect "the program" "$place/usr/bin/deepgemm" --version
expect "the example against the shared library" sh -c \
    "$CC"' examples/gemm.c -o "$0/shared" $(pkg-config --cflags --libs deepgemm) -lm' "$place"
expect "it runs" env LD_LIBRARY_PATH="$place/usr/lib" "$place/shared"
expect "it names the library by its soname" sh -c 'readelf -d "$0/shared" | grep -q "libdeepgemm.so.0"' "$place"
finish install
