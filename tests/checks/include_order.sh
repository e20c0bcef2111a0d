# The rooms of src include only rooms before them: core < shared < plan < {jit, cuda, cpu} < ops, and cli, but for
# `deepgemm tune`, nothing of src.
. tests/checks/lib.sh
# only ROOM ALLOWED...: the quoted includes of src/ROOM name no other rooms
only() {
    room=$1
    shift
    allowed=$(echo "$*" | tr ' ' '|')
    bad=$(grep -rnE '#include "[a-z0-9_]+/' "$room" | grep -vE "\"($allowed)/")
    [ -z "$bad" ] || { echo "$bad"; return 1; }
}
expect "core" only src/core core
expect "shared" only src/shared shared
expect "plan" only src/plan core shared plan
expect "jit" only src/jit core shared plan jit
expect "cuda" only src/cuda core shared plan cuda
expect "cpu" only src/cpu core shared plan cpu
expect "ops" only src/ops core shared plan jit cuda cpu ops
expect "kernels" only kernels common shared
expect "cli includes nothing of src" sh -c \
    '! grep -rnE "#include \"(core|shared|plan|jit|cuda|cpu|ops|src)/" cli | grep -v "^cli/tune"'
expect "python includes nothing of src" sh -c '! grep -rnE "#include \"((core|shared|plan|jit|cuda|cpu|ops|src)/|\.\.)" python'
finish include_order
