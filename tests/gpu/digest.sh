#!/bin/sh
# digest.sh EMU: the cases whose arithmetic is exact, on the emulated GPU and on the real one; the same bits come out.
emulated=$(mktemp) && real=$(mktemp) || exit 1
trap 'rm -f "$emulated" "$real"' EXIT
"$1" --digest >"$emulated" || { head "$emulated"; exit 1; }
"$1" --digest --cuda >"$real" || { head "$real"; exit 1; }
if ! cmp -s "$emulated" "$real"; then
    echo "FAIL digests: emulated (<) and real (>) differ"
    diff "$emulated" "$real"
    exit 1
fi
echo "digests: $(wc -l <"$real") cases give the same bits on the emulated and on the real GPU"
