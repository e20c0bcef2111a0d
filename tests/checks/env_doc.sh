# docs/env.md is what `make docs` would write.
. tests/checks/lib.sh
expect "docs/env.md is up to date" sh -c '"$0/tools/env_doc" | diff - docs/env.md' "$BUILD"
finish env_doc
