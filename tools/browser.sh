#!/bin/sh
# The tests of the web page and `make screenshots` drive Chromium through chromedriver. Find both on
# the PATH; if they are missing, install Debian's packages if that needs no password, or else say
# what to do. Without them those tests are skipped; only with BUCKETQ_TEST_REQUIRE_ALL is that a
# failure.

is_there() {
    command -v chromedriver >/dev/null && { command -v chromium || command -v google-chrome; } >/dev/null
}

is_there && exit 0
sh tools/debian_packages.sh chromium chromium-driver && is_there && exit 0

echo "The tests of the web page need Chromium and chromedriver, and they are not on the PATH." >&2
echo "Install them (on Debian: apt install chromium chromium-driver)." >&2
[ -z "$BUCKETQ_TEST_REQUIRE_ALL" ]
