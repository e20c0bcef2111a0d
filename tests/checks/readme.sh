# What README shows works as written: the C program, the questions to the program, the commands that CI relies on.
. tests/checks/lib.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
block c "int main(void)" >"$work/readme.c"
expect "the C program compiles" sh -c "$CC"' -std=c11 -Wall -Wextra -Wpedantic -Werror -Iinclude -o "$0/readme" \
    "$0/readme.c" -L"$1" -ldeepgemm -Wl,-rpath,"$PWD/$1"' "$work" "$BUILD"
expect "it runs" sh -c '"$0/readme" | grep -q "64 x 2112 on"' "$work"
expect "the test command" [ "$(block sh 'make -j2 test')" = "make -j2 test" ]
expect "CI runs it" grep -qx "make -j2 test" .ci/run
first=$(block sh apt-get)
for package in build-essential pkg-config libcjson-dev python3-venv python3-dev; do
    expect "the first command installs $package, and CI does" sh -c 'case $0 in *" $1 "*) grep -q " $1 " .ci/run ;; *) false ;; esac' \
        "$first" "$package"
done
case_list=$(block sh 'build/deepgemm info' | grep -E '^build/deepgemm (info|precompile)')
expect "commands of the program that need no GPU" [ "$(echo "$case_list" | wc -l)" = 3 ]
echo "$case_list" | sed -e "s|^build/|$BUILD/|; s|1:8192|1:64|" >"$work/commands"
while read -r command; do
    expect "$command" env DG_JIT_CACHE_DIR="$work/cache" sh -c "$command >/dev/null"
done <"$work/commands"
finish readme
