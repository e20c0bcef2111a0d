# Both libraries export dg_ symbols only, all that the header declares, and the header serves C++.
. tests/checks/lib.sh
exported() { nm --defined-only --extern-only $2 "$1" | awk 'NF == 3 && $2 ~ /[TDBRVW]/ { print $3 }' | sort -u; }
same() { [ "$1" = "$2" ] || { echo "$1" | tr '\n' ' '; echo "is not"; echo "$2" | tr '\n' ' '; return 1; }; }
functions=$(grep -oE 'DG_API [^;]*\(' include/deepgemm.h | grep -oE 'dg_[a-z0-9_]+\($' | tr -d '(' | sort -u)

expect "the header declares functions" [ "$(echo "$functions" | wc -l)" -gt 20 ]
expect "libdeepgemm.so exports what the header declares" same "$(exported "$BUILD/libdeepgemm.so" -D)" "$functions"
expect "libdeepgemm.a exports what the header declares" same "$(exported "$BUILD/libdeepgemm.a")" "$functions"
expect "the header is C++ too" "${CXX:-c++}" -std=c++11 -Wall -Wextra -Wpedantic -Werror -Iinclude -o "$BUILD/tests/header" \
    tests/unit/test_header.cpp -L"$BUILD" -ldeepgemm -Wl,-rpath,"$PWD/$BUILD"
expect "a C++ program runs" "$BUILD/tests/header"
expect "no executable stack" sh -c '! readelf -lW "$0" | grep GNU_STACK | grep -q RWE' "$BUILD/libdeepgemm.so"
expect "a program that unloads the library compiles" sh -c \
    "$CC"' -D_GNU_SOURCE -std=c11 -Wall -Wextra -Werror -Iinclude -o "$0/tests/unload" tests/checks/unload.c -ldl' "$BUILD"
expect "it survives" env OMP_NUM_THREADS=4 "$BUILD/tests/unload" "$BUILD/libdeepgemm.so"
finish symbols
