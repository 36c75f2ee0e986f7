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
sh tools/debian_packages.sh $(missing)

[ -z "$(missing)" ] ||
    echo "not installed, so their rows are left out: $(missing) (on Debian or Ubuntu: apt install)" >&2
