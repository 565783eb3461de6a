# Sourced by the other scripts: the way to the project, headings, and root.
# shellcheck shell=bash

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
PATH=$PATH:$HOME/.cargo/bin:/usr/sbin:/sbin

heading() { printf '\n=== %s\n' "$*"; }

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# Runs a test command (cargo test, cargo miri test), and fails when its filter matches no test: cargo
# itself counts that as passed. Nextest does not.
some_tests() {
    local log ran
    log=$(mktemp)
    "$@" 2>&1 | tee "$log" || { rm "$log"; fail "$*"; }
    ran=$(grep -c '^test .* ok$' "$log" || true)
    rm "$log"
    [ "$ran" -gt 0 ] || fail "no test matches: $*"
}

# What a command that needs root begins with: network namespaces, XDP programs and packages do.
# It is put before the command itself, not hidden in a function, so that in the background `$!` is
# the command (or its sudo, which passes signals on) and not a shell around it.
root=()
no_root() { fail "this needs root, and there is no sudo: run it as root"; }
if [ "$(id -u)" -ne 0 ]; then
    root=(no_root)
    ! command -v sudo >/dev/null || root=(sudo -E env "PATH=$PATH")
fi
