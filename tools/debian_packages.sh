#!/bin/sh
# Install Debian's packages, if that needs no password: `sh tools/debian_packages.sh NAME...`.
# Does nothing and fails where there is no apt, or no right to use it. No server is started.

command -v apt-get >/dev/null || exit 1
if [ "$(id -u)" -eq 0 ]; then
    as_root=
elif sudo -n true 2>/dev/null; then
    as_root="sudo -n"
else
    exit 1
fi
echo "installing $*"
# With a run level of 1 packages do not start their servers.
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
for attempt in as-it-is updated; do
    [ "$attempt" = updated ] && $as_root apt-get update -qq >/dev/null
    $as_root apt-get install -qq -y --no-install-recommends "$@" >/dev/null && exit 0
done
exit 1
