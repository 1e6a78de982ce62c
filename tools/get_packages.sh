#!/bin/sh
# Install the Debian packages that Pixiu or its tests need.   usage: get_packages.sh [--required] NEED…
#
#   java      Java 17 or newer: charts, search, a ZooKeeper for clusters
#   browser   chromium, and the library that its driver is linked with: the browser tests
#   curl      the examples of the README
#   openssl   the certificate of the production guide
#   ip        network namespaces in the long tests
#   or another command of a package with the same name
#
# Root on a machine with apt-get needs to answer no question, so they are installed. Elsewhere one line says what to
# install; with --required that is an error, otherwise the tests that need it are skipped by name.
set -eu

required=
if [ "$1" = --required ]; then
    required=yes
    shift
fi

has() {
    case $1 in
    java)
        java=java
        [ -n "${JAVA_HOME:-}" ] && java=$JAVA_HOME/bin/java
        version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p') || return 1
        [ "${version:-0}" -ge 17 ]
        ;;
    browser)
        [ -x /usr/bin/chromium ] && /sbin/ldconfig -p 2>/dev/null | grep -q 'libatomic\.so\.1'
        ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

packages() {
    for need; do
        case $need in
        java) java_package ;;
        browser) echo "chromium libatomic1" ;;
        ip) echo iproute2 ;;
        *) echo "$need" ;;
        esac
    done | tr '\n' ' ' | sed 's/ $//'
}

java_package() {
    for name in openjdk-17-jre-headless openjdk-21-jre-headless; do
        if apt-cache show "$name" >/dev/null 2>&1; then
            echo "$name"
            return
        fi
    done
    echo openjdk-17-jre-headless
}

install() {
    # shellcheck disable=SC2046
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 \
        install -y --no-install-recommends $(packages "$@") >/dev/null 2>&1
}

missing() {
    for need; do
        has "$need" || echo "$need"
    done
}

# shellcheck disable=SC2046
set -- $(missing "$@")
[ $# -gt 0 ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "== installing Debian's $(packages "$@") (once)"
    install "$@" || { apt-get -qq update >/dev/null 2>&1 && install "$@"; } || true
    # shellcheck disable=SC2046
    set -- $(missing "$@")
    [ $# -gt 0 ] || exit 0
fi
wanted=$(packages "$@")
if [ -n "$required" ]; then
    echo "pixiu: missing: $*. Install it, on Debian: sudo apt-get install $wanted" >&2
    exit 1
fi
echo "== missing: $*. The tests that need it are skipped. To have it, on Debian: sudo apt-get install $wanted"
