# One target for each thing a contributor does. `make demo` and `make test` do all the set-up they need.
UV ?= $(or $(shell command -v uv),.tools/bin/uv)
RUN = $(UV) run --frozen
ENGINE = .venv/bin/powerband-engine

.PHONY: demo test lint format golden schemas bundle bench bench-peers calibrate setup uv chromium

demo: setup
	$(RUN) powerband run quickstart

test: setup chromium lint
	cargo test --release --locked --quiet
	$(RUN) pytest

lint: setup
	cargo fmt --check
	cargo clippy --release --locked --all-targets --quiet -- -D warnings
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(RUN) lint-imports

format: uv
	cargo fmt
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

golden: setup
	POWERBAND_UPDATE_GOLDEN=1 $(RUN) pytest -q tests/golden

schemas:
	cargo run --quiet --locked -- schema protocol

bundle:
	cd src/powerband/report/bundle && npm ci && npm run build

bench: setup
	$(RUN) python -m benchmarks --engine $(ENGINE)

bench-peers: setup
	benchmarks/install_peers.sh

calibrate: setup
	$(RUN) powerband calibrate

setup: uv
	$(UV) sync --frozen --quiet

uv:
	@test "$(UV)" != .tools/bin/uv || test -x .tools/bin/uv || (python3 -m venv .tools && .tools/bin/pip install --quiet uv)

# The page tests need a real browser: installed where apt may, else those tests are skipped, and say so.
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	  || (test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq chromium >/dev/null) \
	  || echo "no Chromium: the browser tests will be skipped (install Debian's package chromium to run them)"
