#!/bin/sh
# fetch_deps.sh DIR: install each package of requirements.txt into DIR/<folder>, without what it depends on.
set -eu
here=$(dirname "$0")
mkdir -p "$1"
grep -v '^#' "$here/requirements.txt" | while read -r folder package; do
    [ -d "$1/$folder" ] && continue
    echo "fetching $package"
    rm -rf "$1/$folder.part"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --no-compile \
        --target "$1/$folder.part" "$package"
    mv "$1/$folder.part" "$1/$folder"
done
touch "$1/.done"
