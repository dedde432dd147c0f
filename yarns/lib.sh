# What the steps of the scenarios share. Each step is a bash of its own; what one leaves for the next is a file in
# $DATADIR.

# Nothing of the machine may show in the outcome.
export TZ=UTC LC_ALL=C.UTF-8
umask 022

# The program under test. The repository of the scenario was chosen by its first step.
kitbag() {
    KITBAG_REPOSITORY=$(cat "$DATADIR/repository") KITBAG_CLIENT_NAME=laptop "$PROGRAMS/kitbag" "$@"
}

# Runs kitbag; its output, its complaints and its exit code are kept for the steps that look at them.
try() {
    local code=0
    kitbag "$@" >"$DATADIR/stdout" 2>"$DATADIR/stderr" </dev/null || code=$?
    echo "$code" >"$DATADIR/code"
}

# Runs kitbag, which must succeed.
must() {
    try "$@"
    if [ "$(cat "$DATADIR/code")" != 0 ]; then
        echo "kitbag $* ended with exit code $(cat "$DATADIR/code"):"
        cat "$DATADIR/stdout" "$DATADIR/stderr"
        exit 1
    fi
}

# All that can be said of a tree.
manifest() {
    "$PROGRAMS/manifest" "$1"
}

# Whether two files are the same; shows where not.
same() {
    diff -u "$1" "$2"
}

# The path below which a restore to DIR puts the live data.
restored() {
    echo "$DATADIR/$1$DATADIR/live"
}

fail() {
    echo "$*" >&2
    exit 1
}
