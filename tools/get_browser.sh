#!/bin/sh
# Debian's Chromium for the browser tests: there already, or installed where that needs no question.
# Without it those tests are skipped by name; with CI=true they fail if this machine could have had it.
set -eu
if command -v chromium >/dev/null 2>&1; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "== installing Debian's chromium for the browser tests (once, about 100 MB)"
    export DEBIAN_FRONTEND=noninteractive
    install="apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends chromium"
    if $install >/dev/null 2>&1 || { apt-get -qq update >/dev/null 2>&1 && $install >/dev/null 2>&1; }; then
        exit 0
    fi
fi
echo "no chromium: the browser tests will be skipped. To have it on Debian: apt install chromium"
