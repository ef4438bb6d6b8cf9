# One target for each thing a contributor does. `make demo` and `make test` do all the set-up they need.
UV ?= $(or $(shell command -v uv),.tools/bin/uv)
RUN = $(UV) run --frozen
ENGINE = .venv/bin/powerband-engine
# Tests start Python a thousand times: without its byte code each start compiles every file anew.
unexport PYTHONDONTWRITEBYTECODE

# absent: tool, component of rustup, Debian package. A check may be left out on a machine that lacks it, never in CI.
absent = echo "skipped: no $(1) here (rustup component add $(2), or Debian's package $(3))" >&2; \
	  test "$$POWERBAND_NO_SKIP" != 1

from_apt = (test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq \
	  && apt-get install -y -qq $(1) >/dev/null)

# The same of a package whose service is not to be started: tests start their own.
from_apt_still = (test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq || exit; \
	  test -e /usr/sbin/policy-rc.d || { trap 'rm -f /usr/sbin/policy-rc.d' EXIT; \
	    printf '\#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d; }; \
	  apt-get install -y -qq --no-install-recommends $(1) >/dev/null)

.PHONY: demo cluster-demo test rust-tests test-long test-tables lint fuzz faults format golden reference gallery tutorial schemas bundle dashboards bench aa cpu-races warm-races action-jobs capacities bench-peers bottlenecks statistics calibrate wheels site setup uv extras

demo: setup
	$(RUN) powerband run quickstart

# Three network namespaces of this machine as hosts (root), Ray on each, the quickstart on them: a minute.
cluster-demo: setup
	PYTHONPATH=tests $(RUN) python -m fakes.hosts

# tests: those of a marker expression, with pytest's options. First what only computes, half a worker more than CPUs, since
# some wait for a browser; then what starts servers and bears others beside it, of which so many run for two CPUs, since they
# mostly wait; then what measures and has the machine to itself. An idle worker takes tests from a busy one, so that no long
# file holds up the end. What computes keeps 64 MiB that it freed, since glibc else returns NumPy's arrays and has the kernel
# clear them anew.
# CROWD: tests at once on two CPUs, of whose time a third is CPU time.
CROWD ?= 5
beside = MALLOC_TOP_PAD_=$$((64 << 20)) $(RUN) pytest $(3) -n $$((3 * $$(nproc) / 2)) --dist worksteal -m "not e2e and $(1)" \
	  && $(RUN) pytest $(3) -n $$(($(2) * $$(nproc) / 2)) --dist worksteal -m "e2e and crowded and $(1)" tests/e2e
tests = $(beside) \
	  && $(RUN) pytest $(3) -m "e2e and not crowded and $(1)" tests/e2e

# Rust tests use the dev profile, which builds in a third of the release's time; Python's use the release engine. Most of
# the Rust tests' time is that of servers that rest, so that three share a CPU, and lint has what they leave.
test: setup extras
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint rust-tests
	$(call tests,not long and not table,$(CROWD))

rust-tests:
	RUST_TEST_THREADS=$$((3 * $$(nproc))) cargo test --locked --quiet

test-long: setup extras
	$(call tests,long and not table,$(CROWD))

# The rows of published tables that the two above leave out. At the end -rP shows what each printed: -s shows no worker's.
test-tables: setup extras
	$(call tests,table,4,-raP)

lint: setup
	@cargo fmt --version >/dev/null 2>&1 || { $(call absent,cargo fmt,rustfmt,rustfmt); exit; }; \
	  set -x; cargo fmt --check
	@cargo clippy --version >/dev/null 2>&1 || { $(call absent,cargo clippy,clippy,rust-clippy); exit; }; \
	  set -x; cargo clippy --locked --all-targets --quiet -- -D warnings
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(RUN) lint-imports

# Each parser of what the network says, for so many seconds.
FUZZ_SECONDS ?= 20
fuzz:
	fuzz/run.sh $(FUZZ_SECONDS)

format: uv
	cargo fmt
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

golden: setup
	POWERBAND_UPDATE_GOLDEN=1 $(RUN) pytest -q tests/golden

# The parts of the reference that are lists, from the code; read the diff before a commit.
reference: setup
	PYTHONPATH=tests $(RUN) python -m scripts.reference

# A thousand kills at random, over races that are resumed: half an hour. KILLS and SEED say how many, and which.
KILLS ?= 1000
SEED ?= 7
faults: setup
	PYTHONPATH=tests $(RUN) python -m fakes.kills $(KILLS) $(SEED)

# Pictures of the docs from what is kept of runs; GALLERY="--only live" is that of the live page, for which a run is made.
gallery: setup extras
	$(RUN) python -m scripts.gallery $(GALLERY)

# What the tutorial shows as output, from its own commands: on a quiet machine, five minutes.
tutorial: setup
	$(RUN) python -m scripts.tutorial

schemas:
	cargo run --quiet --locked -- schema protocol

bundle:
	cd src/powerband/report/bundle && npm ci && npm run build

dashboards: setup
	$(RUN) python -m scripts.grafana

# Hours with all sections; BENCH="--only http --pairs 9" for some.
bench: setup
	$(RUN) python -m benchmarks --engine $(ENGINE) $(BENCH)

# A hundred real sweeps of equal settings, 20 minutes on a quiet machine; goes on where it was stopped.
aa: setup
	$(RUN) python -m benchmarks.aa_sweeps --engine $(ENGINE)

# One worker against two in four languages, beside wrk: 20 races, half an hour on a quiet machine; goes on where it was stopped.
cpu-races: setup
	POWERBAND_ENGINE=$(ENGINE) $(RUN) python -m benchmarks.cpu_races

# Races of a JVM's first compiler against its last, in a plain server and in Spring Boot: 20 of each, 6 minutes each, on a
# quiet machine; goes on where it was stopped.
warm-races: setup
	POWERBAND_ENGINE=$(ENGINE) $(RUN) python -m benchmarks.warm_races

# The GitHub Action beside a noisy neighbour, with and without a regression: 20 jobs of up to 5 minutes; goes on where it was
# stopped.
action-jobs: setup
	POWERBAND_ENGINE=$(ENGINE) PYTHONPATH=tests:. $(RUN) python -m benchmarks.action_jobs

# Capacities of real pools in Python, Go and Java against M/G/k and windows of a minute: 21 searches, two at once, in an hour
# on a quiet machine; goes on where it was stopped.
capacities: setup
	POWERBAND_ENGINE=$(ENGINE) PYTHONPATH=tests:. $(RUN) python -m benchmarks.capacity_pools --beside 2 --searches 21 --minutes 120

bench-peers: setup
	benchmarks/install_peers.sh

# Runs the planted bottlenecks on this machine, which must be quiet, and records how many were named rightly: 20 minutes.
# CASES="Tomcat disk" tries only those whose names hold one of these words, and leaves the other rows as they are.
CASES ?=
bottlenecks: setup extras
	PYTHONPATH=tests $(RUN) python -m fakes.confusion docs/methods/bottlenecks.md docs/methods/data/planted-bottlenecks.csv $(CASES)
	PYTHONPATH=tests $(RUN) python -m fakes.followed

# Tables of how often verdicts and figures are wrong on servers whose truth is known, into the pages, and the results of all
# cases into docs/methods/data: simulated, 10 minutes. TABLES="bounds capacity" makes only those whose titles hold one of
# these words.
TABLES ?=
statistics: setup
	PYTHONPATH=tests $(RUN) python -m fakes.made_tables $(TABLES)

# A wheel for the package index, in dist/: runs on any x86-64 Linux with glibc 2.17 or later, without a compiler.
wheels: uv
	UV=$(UV) scripts/wheels.sh

calibrate: setup
	$(RUN) powerband calibrate

# The docs as a site, in site/. MkDocs lives in uv's cache, apart from this project's packages.
site: uv
	NO_MKDOCS_2_WARNING=1 $(UV) tool run --with-requirements scripts/site.txt --from mkdocs mkdocs build --strict --quiet

setup: uv
	$(UV) sync --frozen --quiet

# Debian ships venv and pip apart from Python, so whichever is there brings uv.
uv:
	@test "$(UV)" != .tools/bin/uv || test -x .tools/bin/uv \
	  || { python3 -m venv --clear .tools >/dev/null 2>&1 && .tools/bin/python -m pip install --quiet --require-hashes -r scripts/uv.txt; } \
	  || { rm -rf .tools; python3 -m pip install --quiet --require-hashes --target .tools -r scripts/uv.txt; } \
	  || { echo "uv could not be installed: install Debian's package python3-venv (or python3-pip), or uv itself" \
	       "(https://docs.astral.sh/uv), and see that the package index is reachable" >&2; exit 1; }

# What only some tests need: installed where apt may, else those tests are skipped, and say so.
extras:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	  || $(call from_apt,chromium) || echo "no Chromium: the browser tests will be skipped (Debian's package chromium)"
	@command -v mvn >/dev/null || $(call from_apt,maven) \
	  || echo "no Maven: the tests of the Vert.x, Spring and Pekko subjects will be skipped (Debian's package maven)"
	@command -v npm >/dev/null || $(call from_apt,nodejs npm) \
	  || echo "no npm: the tests of the SocketCluster subject will be skipped (Debian's packages nodejs and npm)"
	@command -v dotnet >/dev/null || test -n "$$DOTNET_ROOT" || test -e ../shared/dotnet/use \
	  || echo "no .NET SDK: the tests of the Akka.NET subject will be skipped (https://dotnet.microsoft.com/download)"
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || $(call from_apt,postgresql) \
	  || echo "no PostgreSQL: the tests with a database will be skipped (Debian's package postgresql)"
	@command -v prometheus >/dev/null || $(call from_apt_still,prometheus) \
	  || echo "no Prometheus: the tests that are scraped by one will be skipped (Debian's package prometheus)"
	@command -v dockerd >/dev/null || $(call from_apt_still,docker.io) \
	  || echo "no Docker engine: the tests of containers will be skipped (Debian's package docker.io)"
	@test -e /lib/systemd/systemd && command -v sshd >/dev/null && command -v sudo >/dev/null \
	  || $(call from_apt_still,openssh-server sudo systemd) \
	  || echo "no SSH server, sudo or systemd: the test of another machine will be skipped (Debian's packages openssh-server, sudo and systemd)"
	@command -v erlc >/dev/null || $(call from_apt_still,erlang-base) \
	  || echo "no Erlang: the test of a program in it will be skipped (Debian's package erlang-base)"
