#!/usr/bin/env bash
# Installs the generators that `make bench` compares with into .tools/peers. Generators whose toolchain is missing are
# skipped with a notice. wrk comes from Debian's packages, k6 through Go, oha through cargo, Artillery and statsd
# through npm; powerband itself fetches JMeter.
set -uo pipefail
cd "$(dirname "$0")/.."
peers="$PWD/.tools/peers"
mkdir -p "$peers/bin"
missing() { echo "skipped: $1 ($2)"; }

if ! command -v wrk >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get install -y -q wrk || missing wrk "apt-get failed"
  else missing wrk "install Debian's package wrk"; fi
fi
if [ ! -x "$peers/bin/k6" ]; then
  if command -v go >/dev/null; then GOBIN="$peers/bin" go install go.k6.io/k6@v1.8.1 || missing k6 "go install failed"
  else missing k6 "Go is missing"; fi
fi
if [ ! -x "$peers/bin/oha" ]; then cargo install --quiet --locked --root "$peers" --version 1.16.0 oha || missing oha "cargo install failed"; fi
if [ ! -x "$peers/bin/artillery" ]; then
  if command -v npm >/dev/null; then
    npm install --silent --ignore-scripts --no-fund --no-audit --prefix "$peers/artillery" artillery@2.0.34 \
      && ln -sf "$peers/artillery/node_modules/.bin/artillery" "$peers/bin/artillery" || missing Artillery "npm failed"
  else missing Artillery "npm is missing"; fi
fi
if [ ! -d "$peers/statsd/node_modules/statsd" ]; then
  if command -v npm >/dev/null; then
    npm install --silent --ignore-scripts --no-fund --no-audit --omit=optional --prefix "$peers/statsd" statsd@0.9.0 \
      || missing statsd "npm failed"
  else missing statsd "npm is missing"; fi
fi
