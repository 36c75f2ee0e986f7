#!/bin/sh
# The tests of the web page and `make screenshots` drive Chromium through chromedriver. Find both on
# the PATH; if they are missing, install Debian's packages if that needs no password, or else say
# what to do. Without them those tests are skipped; only with BUCKETQ_TEST_REQUIRE_ALL is that a
# failure.

is_there() {
    command -v chromedriver >/dev/null && { command -v chromium || command -v google-chrome; } >/dev/null
}

is_there && exit 0

if command -v apt-get >/dev/null; then
    if [ "$(id -u)" -eq 0 ]; then
        as_root=
    elif sudo -n true 2>/dev/null; then
        as_root="sudo -n"
    else
        as_root=none
    fi
    if [ "$as_root" != none ]; then
        echo "installing chromium and chromium-driver, which test the web page"
        export DEBIAN_FRONTEND=noninteractive
        for attempt in as-it-is updated; do
            [ "$attempt" = updated ] && $as_root apt-get update -qq >/dev/null
            $as_root apt-get install -qq -y --no-install-recommends chromium chromium-driver >/dev/null && break
        done
        is_there && exit 0
    fi
fi

echo "The tests of the web page need Chromium and chromedriver, and they are not on the PATH." >&2
echo "Install them (on Debian: apt install chromium chromium-driver)." >&2
[ -z "$BUCKETQ_TEST_REQUIRE_ALL" ]
