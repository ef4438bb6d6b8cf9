#!/usr/bin/env bash
# Builds the fuzz targets and runs each for the given number of seconds (20). Inputs that break one are left in
# fuzz/artifacts, and those that cover new code in fuzz/corpus. Without a sanitizer: the parsers are safe Rust, so any
# toolchain will do.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-20}
version=0.13.1
PATH=$PWD/.tools/bin:$PATH

# A check may be left out on a machine that lacks its tools, never in CI.
skip() {
  echo "skipped: no fuzzing, for $1" >&2
  test "${POWERBAND_NO_SKIP:-0}" != 1
  exit
}

command -v c++ >/dev/null || skip "there is no C++ compiler here (Debian's package g++)"
command -v cargo-fuzz >/dev/null || cargo install --quiet --debug --locked --root .tools "cargo-fuzz@$version" \
  || skip "cargo-fuzz could not be installed (is the package registry reachable?)"

cargo fuzz build --sanitizer none
for target in $(cargo fuzz list); do
  corpus=fuzz/corpus/$target
  log=fuzz/corpus/$target.log
  mkdir -p "$corpus"
  cargo fuzz run --sanitizer none "$target" "$corpus" "fuzz/seeds/$target" \
    -- -max_total_time="$seconds" -timeout=10 -print_final_stats=1 >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
  echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs in $seconds s"
done
