# Format, clang-tidy and a build by clang, all without a word; for machines that have clang and its tools.
. tests/checks/lib.sh
for tool in clang clang-format clang-tidy; do
    command -v $tool >/dev/null || { echo "SKIP style: no $tool"; finish style; exit; }
done
expect "clang-format" make -s check-format
expect "clang-tidy" make -s check-tidy
expect "a build by clang" make -s -j2 BUILD="$BUILD-clang" CC=clang CFLAGS="-O1 -Werror" all python
finish style
