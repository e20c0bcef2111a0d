#!/bin/sh
# fetch_deps.sh DIR: install each package of requirements.txt into DIR/<folder>, without what it depends on. A folder is
# kept for as long as its line stays the same.
set -eu
here=$(dirname "$0")
mkdir -p "$1"
grep -v '^#' "$here/requirements.txt" | while read -r folder package; do
    [ "$(cat "$1/$folder/.requirement" 2>/dev/null)" = "$package" ] && continue
    echo "fetching $package"
    [ -x "$1/venv/bin/pip" ] || python3 -m venv "$1/venv"
    rm -rf "$1/$folder" "$1/$folder.part"
    "$1/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-compile \
        --target "$1/$folder.part" "$package"
    echo "$package" >"$1/$folder.part/.requirement"
    mv "$1/$folder.part" "$1/$folder"
done
touch "$1/.done"
