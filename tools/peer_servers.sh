#!/bin/sh
# `make bench-peers` starts PostgreSQL and Redis from Debian's packages. Install what is missing if
# that needs no password, or else say what to do; rows whose server is missing are left out.

missing() {
    names=
    command -v redis-server >/dev/null || names="redis-server"
    ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null ||
        names="$names postgresql"
    echo $names
}

[ -z "$(missing)" ] && exit 0

if command -v apt-get >/dev/null; then
    if [ "$(id -u)" -eq 0 ]; then
        as_root=
    elif sudo -n true 2>/dev/null; then
        as_root="sudo -n"
    else
        as_root=none
    fi
    if [ "$as_root" != none ]; then
        echo "installing $(missing)"
        # With a run level of 1 the packages do not start their servers.
        export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
        for attempt in as-it-is updated; do
            [ "$attempt" = updated ] && $as_root apt-get update -qq >/dev/null
            $as_root apt-get install -qq -y --no-install-recommends $(missing) >/dev/null && break
        done
    fi
fi

[ -z "$(missing)" ] ||
    echo "not installed, so their rows are left out: $(missing) (on Debian or Ubuntu: apt install)" >&2
