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

# block LANGUAGE TEXT: the first ```LANGUAGE block of README.md that holds TEXT
block() {
    awk -v fence="\`\`\`$1" -v text="$2" '
        $0 == fence { inside = 1; body = ""; next }
        inside && /^```$/ { inside = 0; if (index(body, text)) { printf "%s", body; exit } next }
        inside { body = body $0 "\n" }' README.md
}
