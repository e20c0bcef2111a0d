# For kernels, by smem_access.sh: prints what touches the hardware, or shared memory that TMA or wgmma also touch, by
# itself and not through a function of kernels/common.
#
# The second rule, for files that include common/tma.h: a member of struct smem may be named as an address only, with &
# before it or with fewer subscripts than it has dimensions.

function complain(text) {
    printf "%s:%d: %s: %s\n", FILENAME, FNR, text, $0
}

# The arrays that a line of the struct declares: their dimensions.
function learn(line,    at, name) {
    while (match(line, /[a-z_0-9]+(\[[^]]*\])+/)) {
        at = substr(line, RSTART, RLENGTH)
        name = substr(at, 1, index(at, "[") - 1)
        dimensions[name] = gsub(/\[/, "", at)
        line = substr(line, RSTART + RLENGTH)
    }
}

# How many subscripts the text begins with; brackets within them do not count.
function subscripts(text,    i, c, depth, count) {
    for (i = 1; i <= length(text); ++i) {
        c = substr(text, i, 1)
        if (c == "[" && depth++ == 0)
            ++count
        else if (c == "]")
            --depth
        else if (depth == 0)
            break
    }
    return count
}

function check_members(line,    before, name, after) {
    while (match(line, /(s|smem)->[a-z_0-9]+/)) {
        before = substr(line, 1, RSTART - 1)
        name = substr(line, RSTART, RLENGTH)
        sub(/.*->/, "", name)
        after = substr(line, RSTART + RLENGTH)
        if ((name in dimensions) && before !~ /&$/ && (before ~ /\*$/ || subscripts(after) >= dimensions[name]))
            complain("a plain access to " name)
        line = after
    }
}

FNR == 1 { in_struct = async = 0; split("", dimensions) }
{ text = $0; sub(/\/\*.*/, "", text) }
/^ \*/ { next } # a comment
/#include "common\/tma.h"/ { async = 1 }
text ~ /(^|[^a-z_])asm([^a-z_]|$)|__[a-z]|threadIdx|blockIdx|gridDim|blockDim/ { complain("not through kernels/common") }
/^struct smem \{/ { in_struct = 1 }
in_struct { learn(text) }
/^};/ { in_struct = 0 }
async && !in_struct { check_members(text) }
