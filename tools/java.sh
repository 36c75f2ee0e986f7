#!/bin/sh
# Spark needs Java 17 or newer. Find it by JAVA_HOME or PATH; if there is none, install Debian's
# package if that needs no password, or else say what to do. Without
# Java the tests of Spark are skipped; only with BUCKETQ_TEST_REQUIRE_ALL is that a failure.

package=openjdk-17-jre-headless

is_there() {
    java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
    version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
    [ "${version:-0}" -ge 17 ]
}

is_there && exit 0
[ -z "$JAVA_HOME" ] && sh tools/debian_packages.sh $package && is_there && exit 0

if [ -n "$JAVA_HOME" ]; then
    found="JAVA_HOME is $JAVA_HOME, which has no Java 17 or newer"
else
    found="there is no Java 17 or newer on the PATH"
fi
echo "Spark needs Java 17 or newer, and $found." >&2
echo "Install it (on Debian or Ubuntu: apt install $package), or set JAVA_HOME to where it is." >&2
[ -z "$BUCKETQ_TEST_REQUIRE_ALL" ]
