# Everything a newcomer or CI needs, on a machine with nothing but Python 3.11+ and make.
#   make demo     the main job, live in the terminal, on embedded defaults
#   make test     the tests: no network, no service to start by hand
#   make test-thorough  long ones, and those of which make test has a sample
#   make test-docs   every command of every page
#   make test-crash  kill -9 at every journal write, around every cloud call, at every step of a peering; minutes
#   make test-alerts  every alert and every query of the dashboard in a real Prometheus; two minutes
#   make test-replicas  replicas on PostgreSQL under stops, kills, cuts, clock jumps and failovers, with a history checker; minutes
#   make simulate  virtual days of an engine whose clouds, cluster, disk and clock misbehave; ARGS_SIMULATE="--seeds 1-100"
#   make test-clouds  each driver of a cloud against a real server, where this machine can have one
#   make test-clouds-crash  kill -9 at every commit, call and request to a cloud that is not ours to make; an hour and more
#   make e2e      the real autoscaler and a real Kubernetes API on loopback; needs Go
#   make e2e-chart  the Helm chart, by the real helm and a real Kubernetes API; needs Go
#   make e2e-first-node  types the page from an empty cluster to the first scaled node; needs root and Go
#   make e2e-matrix  the same for every release; resumable, for hours
#   make e2e-rollover  two replicas updated from the previous release and back under the real autoscaler; needs Go
#   make e2e-certificates  the real cert-manager makes the chart's certificates and renews them under load; needs Go
#   make e2e-join real machines join: Debian boots in QEMU with the ready-made user data; needs root, Go and libvirt
#   make check    ruff, mypy, import-linter, generated code is current
#   make docs-site  docs/ as a site in site/, with search and without files from elsewhere; links are checked
#   make walk     which modules five flows through a server pass, from the call to its end
#   make bench    speed against a bare gRPC server, as ratios
#   make native   builds and installs the native transport; needs Rust's cargo
#   make dist     source distributions, wheels and a bill of materials: built twice, judged, installed and served from; needs cargo
#   make image    the image of deploy/Dockerfile, by docker, podman or buildah; BASE=IMAGE for another Python
#   make test-image  builds it and runs every program in it, as an ordinary user on a read-only root; needs root
#   make test-pythons  make demo and make test on every supported Python, in minimal Debians and in the image; needs root
#   make native-check  formatting, lints and unit tests of the Rust code
#   make native-deny   licences and sources of the Rust crates that it is built from
#   make run ARGS="serve --config cloudgraft.yaml"
# The environment in .venv is made on first use from the locked requirements; a second run is fast.

# Tests start hundreds of Python processes: without compiled modules each of them would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

# Another Python has an environment of its own: make test PYTHON=/usr/bin/python3.13 VENV=.venv-3.13
PYTHON ?= python3
ARGS ?= --help
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check --no-input
CORE := $(VENV)/.core-installed
DEV := $(VENV)/.dev-installed
PROTO_VENV := .venv-proto
PROTO := $(PROTO_VENV)/.installed
NATIVE_VENV := .venv-native
NATIVE := $(NATIVE_VENV)/.installed
DIST_VENV := .venv-dist
DIST := $(DIST_VENV)/.installed
SITE_VENV := .venv-site
SITE := $(SITE_VENV)/.installed
CARGO_DENY := $(NATIVE_VENV)/bin/cargo-deny
NATIVE_SOURCES := native/Cargo.toml native/Cargo.lock native/pyproject.toml native/cloudgraft_native.pyi $(wildcard native/src/*.rs)

.PHONY: help demo test test-thorough test-docs test-crash test-replicas simulate test-clouds test-clouds-crash e2e e2e-chart e2e-certificates e2e-first-node e2e-matrix e2e-rollover e2e-join test-alerts check lint types layers proto proto-check docs walk bench native native-check native-deny dist image test-image test-pythons docs-site run format clean

help:
	@sed -n 's/^#   //p' Makefile

demo: $(CORE)
	@$(BIN)/cloudgraft demo $(ARGS_DEMO)

run: $(CORE)
	@$(BIN)/cloudgraft $(ARGS)

test: $(DEV)
	@$(BIN)/python -m pytest -n auto --dist loadgroup --ignore=tests/docs -m "not thorough and not exhaustive" $(ARGS_TEST)

test-thorough: $(DEV)
	@$(BIN)/python -m pytest -n auto -m "thorough and not exhaustive" $(ARGS_TEST)

test-docs: $(DEV)
	@$(BIN)/python -m pytest -n auto tests/docs $(ARGS_TEST)

test-crash: $(DEV)
	@if command -v strace >/dev/null; then $(BIN)/python -m tests.store.trace_fsync; \
	else echo "strace is not installed: that the disk has a change before it is answered was not watched" >&2; fi
	@$(BIN)/python -m tests.crash $(ARGS_CRASH)
	@$(BIN)/python -m pytest -n auto -m exhaustive $(ARGS_TEST)

test-alerts: $(DEV)
	@$(BIN)/python -m tests.alerts

test-replicas: $(DEV)
	@$(BIN)/python -m tests.replicas $(ARGS_REPLICAS)

simulate: $(DEV)
	@$(BIN)/python -m tests.simulation $(ARGS_SIMULATE)

test-clouds: $(DEV)
	@$(BIN)/python -m clouds $(ARGS_CLOUDS)

test-clouds-crash: $(DEV)
	@$(BIN)/python -m clouds.sweep $(ARGS_CLOUDS)

e2e: $(DEV)
	@$(BIN)/python -m e2e $(ARGS_E2E)

e2e-chart: $(DEV)
	@$(BIN)/python -m e2e.chart

e2e-first-node: $(DEV)
	@$(BIN)/python -m e2e.first_node $(ARGS_E2E)

e2e-certificates: $(DEV)
	@$(BIN)/python -m e2e.certificates $(ARGS_CERTIFICATES)

e2e-matrix: $(DEV)
	@$(BIN)/python -m e2e.matrix --table docs/reference/compatibility.md $(ARGS_E2E)

e2e-rollover: $(DEV)
	@$(BIN)/python -m e2e.rollover $(ARGS_ROLLOVER)

e2e-join: $(DEV)
	@$(BIN)/python -m e2e.join $(ARGS_JOIN)

check: lint types layers proto-check docs

lint: $(DEV)
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .

types: $(DEV)
	$(BIN)/mypy

layers: $(DEV)
	$(BIN)/lint-imports --no-cache

docs: $(DEV)
	$(BIN)/python -m scripts.generate_reference --check

proto: $(PROTO)
	$(PROTO_VENV)/bin/python scripts/generate_proto.py

proto-check: $(PROTO)
	$(PROTO_VENV)/bin/python scripts/generate_proto.py --check

docs-site: $(CORE) $(SITE)
	@$(BIN)/python -m scripts.make_site $(SITE_VENV)

walk: $(CORE)
	@$(BIN)/python -m scripts.walk $(ARGS_WALK)

bench: $(DEV)
	@$(BIN)/python -m bench $(ARGS_BENCH)

native: $(VENV)/.native-installed

native-check: $(NATIVE)
	cd native && cargo fmt --check && cargo clippy --locked --release --all-targets -- -D warnings && cargo test --locked --release --quiet

native-deny: $(CARGO_DENY)
	cd native && ../$(CARGO_DENY) --locked check licenses bans sources

dist: $(DEV) $(NATIVE) $(DIST)
	@$(BIN)/python -m scripts.make_dist $(VENV) $(NATIVE_VENV) $(DIST_VENV)

IMAGE_OPTIONS = --native-venv $(NATIVE_VENV) $(if $(BASE),--base $(BASE)) $(ARGS_IMAGE)

image: $(CORE) $(NATIVE)
	@$(BIN)/python -m scripts.make_image $(IMAGE_OPTIONS)

test-image: $(DEV) $(NATIVE)
	@$(BIN)/python -m tests.image $(IMAGE_OPTIONS)

test-pythons: $(DEV) $(NATIVE)
	@$(BIN)/python -m tests.pythons $(IMAGE_OPTIONS) $(ARGS_PYTHONS)

format: $(DEV)
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .

clean:
	rm -rf $(VENV) $(PROTO_VENV) $(NATIVE_VENV) $(DIST_VENV) $(SITE_VENV) native/target dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "cloudgraft needs Python 3.11 or newer; say which with: make PYTHON=/path/to/python3.x" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "could not make $(VENV): on Debian and Ubuntu, install the package python3-venv" >&2; rm -rf $(VENV); exit 1; }

$(CORE): pyproject.toml requirements/core.txt | $(BIN)/python
	@echo "setting up $(VENV) (once) ..." >&2
	@$(PIP) install --require-hashes -r requirements/core.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV): requirements/dev.txt $(CORE)
	@echo "adding the test tools to $(VENV) (once) ..." >&2
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@# Else each worker of the tests does it: all modules, and those with tests as pytest wants them compiled.
	@# By xargs and not by compileall's own -j: that needs semaphores, which need /dev/shm.
	@find src tests clouds e2e bench -name '*.py' ! -name 'test_*' -print0 | xargs -0 -n 500 -P 2 $(BIN)/python -m compileall -q
	@ls -d tests/*/ | xargs -n 18 -P 2 $(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1 || true
	@touch $@

$(PROTO): requirements/proto.txt
	@$(PYTHON) -m venv $(PROTO_VENV)
	@$(PROTO_VENV)/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes -r requirements/proto.txt
	@touch $@

$(NATIVE): requirements/native.txt
	@$(PYTHON) -m venv $(NATIVE_VENV)
	@$(NATIVE_VENV)/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes -r requirements/native.txt
	@touch $@

$(DIST): requirements/dist.txt
	@$(PYTHON) -m venv $(DIST_VENV)
	@$(DIST_VENV)/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes -r requirements/dist.txt
	@touch $@

$(SITE): requirements/site.txt
	@$(PYTHON) -m venv $(SITE_VENV)
	@$(SITE_VENV)/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes -r requirements/site.txt
	@touch $@

$(CARGO_DENY): | $(NATIVE)
	@echo "building cargo-deny (minutes, once) ..." >&2
	@cargo install --quiet --locked --root $(NATIVE_VENV) --version 0.20.2 cargo-deny

# The environment's other stamps stay as they are: make test and make demo take the transport where it is installed.
$(VENV)/.native-installed: $(NATIVE_SOURCES) | $(CORE) $(NATIVE)
	@command -v cargo >/dev/null || { echo "make native needs cargo, of Rust 1.88 or newer: https://rustup.rs" >&2; exit 1; }
	@echo "building the native transport (minutes the first time) ..." >&2
	@rm -rf $(NATIVE_VENV)/wheels
	@cd native && ../$(NATIVE_VENV)/bin/maturin build --quiet --release --locked --interpreter ../$(BIN)/python --out ../$(NATIVE_VENV)/wheels
	@$(PIP) install --no-deps --force-reinstall $(NATIVE_VENV)/wheels/*.whl
	@touch $@
