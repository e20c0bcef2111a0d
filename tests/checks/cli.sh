# The program as its user meets it.
exec sh tests/cli/run.sh "$BUILD/deepgemm"
