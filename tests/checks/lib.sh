# For the checks: `expect NAME COMMAND...` counts a success or failure, `finish NAME` prints the count.
passed=0
failed=0

expect() {
    name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        echo "FAIL $name"
        failed=$((failed + 1))
    fi
}

finish() {
    echo "$1: $passed passed, $failed failed"
    [ "$failed" -eq 0 ]
}
