#!/usr/bin/env bash
# A wheel that the package index takes, in dist/: `scripts/wheels.sh [TARGET]`. Needs cargo (for other targets than this
# machine's, `rustup target add TARGET`) and uv; brings zig, which links for glibc 2.17 and later, and auditwheel, which
# reads what the binary needs off the binary itself.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=${UV:-uv}
target=${1:-$(uname -m)-unknown-linux-gnu}
machine=${target%%-*}
manylinux=manylinux_2_17_$machine

case $target in
  *-linux-gnu) built_for=$target.2.17 platform=$manylinux.manylinux2014_$machine ;;
  # Linked statically, so that it runs with any libc.
  *-linux-musl) built_for=$target platform=$manylinux.manylinux2014_$machine.musllinux_1_1_$machine ;;
  *) echo "wheels are made for Linux with glibc or musl, and $target is neither" >&2; exit 2 ;;
esac

# What it is built with, with the hashes that we have seen; kept between two calls.
tools=target/wheel-tools
$uv venv --quiet --allow-existing "$tools"
$uv pip install --quiet --python "$tools/bin/python" --require-hashes -r scripts/wheels.txt
PATH=$PWD/$tools/bin:$PATH

export CARGO_TARGET_DIR=$PWD/target  # wherever the user's own configuration would build
cargo-zigbuild zigbuild --release --locked --package powerband-engine --target "$built_for"

rm -f dist/*"_$machine.whl"
POWERBAND_BUILT_ENGINE=target/$target/release/powerband-engine POWERBAND_WHEEL_PLATFORM=$platform \
  $uv build --quiet --wheel --out-dir dist
wheel=$(ls dist/*"_$machine.whl")
if [[ $target == *-gnu ]]; then
  said=$(auditwheel show "$wheel")
  echo "$said"
  tr '\n' ' ' <<<"$said" | grep -q "following platform tag: *\"$manylinux\"" \
    || { echo "the engine asks for more than glibc 2.17: the package index would refuse this tag" >&2; exit 1; }
fi
ls -l "$wheel"
