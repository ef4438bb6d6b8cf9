# One target for each thing a contributor does. `make demo` and `make test` do all the set-up they need.
SHELL := /bin/bash
UV ?= $(shell command -v uv || echo .tools/bin/uv)
RUN = $(UV) run --frozen

.PHONY: demo test setup uv lint format schemas bench calibrate clean

demo: setup
	$(RUN) powerband run quickstart --open-hint

test: setup lint
	cargo test --release --locked --quiet
	$(RUN) pytest

setup: uv
	$(UV) sync --frozen

uv:
	@if [ "$(UV)" = .tools/bin/uv ] && [ ! -x .tools/bin/uv ]; then python3 -m venv .tools && .tools/bin/pip install --quiet uv; fi

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

schemas:
	cargo run --quiet --locked -- schema protocol
