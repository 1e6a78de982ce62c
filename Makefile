# Pixiu. `make` lists the targets; `make test` is exactly what continuous integration runs.

SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
MAKEFLAGS += --no-print-directory

# The tests start hundreds of processes: compiled once, each is there in a third of the time.
unexport PYTHONDONTWRITEBYTECODE

# A machine may have no locale, or one that was never generated. This one is part of the C library.
export LC_ALL := C.UTF-8
unexport LANGUAGE

# A stamp is named after the content it was made from, so a changed lock file, or a checkout that was moved,
# sets the environment up again, and anything else starts at once.
hash = $(shell { echo '$(CURDIR)'; cat $(1) 2>/dev/null; } | sha256sum | cut -c1-16)
BASE_FILES := requirements/base.txt requirements/build.txt pyproject.toml
BASE := $(VENV)/.base-$(call hash,$(BASE_FILES))
DEV := $(VENV)/.dev-$(call hash,$(BASE_FILES) requirements/dev.txt)
PIPELINE := $(VENV)/.pipeline-$(call hash,requirements/pipeline.txt)
FUZZ := $(VENV)/.fuzz-$(call hash,$(BASE_FILES) requirements/fuzz.txt)

PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check --no-input
PYTEST := $(BIN)/python -m pytest

INSTALL_PIPELINE = $(MAKE) setup-pipeline
PACKAGES := java browser curl openssl

.DEFAULT_GOAL := help
.PHONY: help setup setup-pipeline serve test check format test-long test-fresh test-engines fuzz bench bench-queue bench-core bench-gateway bench-pipeline bench-cluster bench-engines bench-ab demo lock docs proto clean

help: ## list the targets
	@echo "Pixiu: make TARGET [ARGS='…']"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(DEV) $(PIPELINE) ## set up .venv with everything that the other targets need
	@tools/get_packages.sh $(PACKAGES)
	@echo "ready: $(BIN)/pixiu --help"

# Java first: without it the other 1 GB is of no use.
setup-pipeline: $(BASE) ## install what charts and search need: Java and Spark
	@tools/get_packages.sh --required java
	@$(MAKE) $(PIPELINE)

# The server starts at once and runs setup-pipeline in the background.
serve: $(BASE) ## set up, then start Pixiu on this machine (ARGS='--port 8400 --data DIR', --no-pipeline)
	@exec $(BIN)/pixiu serve --dev --set pipeline.install='$(INSTALL_PIPELINE)' $(ARGS)

test: $(DEV) $(PIPELINE) ## lint, types, layer rules and all tests but the long ones (what CI runs)
	@$(MAKE) check
	@tools/get_packages.sh $(PACKAGES)
	@echo "== tests, three at a time: they wait as often as they work"
	@$(PYTEST) -q -rs -n 3 --dist loadfile -m "not long and not engines and not crash and not serial" $(ARGS)
	@echo "== tests that need the machine to themselves"
	@$(PYTEST) -q -rs -m "(crash or serial) and not long and not engines" $(ARGS)
	@echo "== all green: lint, types, layers, tests"

check: $(DEV) $(PIPELINE) ## lint, format, types and layer rules, without tests
	@echo "== lint"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { echo "not formatted; run: make format"; exit 1; }
	@echo "== types"
	@$(BIN)/mypy --no-error-summary
	@echo "== layers"
	@$(BIN)/lint-imports --no-cache >$(VENV)/layers.txt 2>&1 || { cat $(VENV)/layers.txt; exit 1; }

format: $(DEV) ## format the source and fix what the linter can
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format --quiet .

test-long: $(DEV) $(PIPELINE) ## the long tests: a thousand kills, thousands of seeds, fuzzing, a soak, 25.6 million messages
	@tools/get_packages.sh $(PACKAGES) ip
	@$(PYTEST) -m long --timeout 14400 $(ARGS)
	@$(MAKE) fuzz ARGS=-max_total_time=600
	@$(BIN)/python -m benchmarks.queue.soak
	@$(BIN)/python -m benchmarks.queue --only seed --seed-messages 25600000
	@if [ "$$(id -u)" = 0 ]; then $(MAKE) test-fresh ARGS=; else echo "skipped: make test-fresh needs root"; fi

test-fresh: $(DEV) ## make serve, the production guide and make test in a bare Debian root (needs root; ARGS='--only serve')
	@$(BIN)/python -m tools.test_fresh $(ARGS)

test-engines: $(DEV) $(PIPELINE) ## the tests with Kafka, Cassandra, Redis and ZooKeeper, their faults included
	@$(BIN)/python -m tools.jars
	@$(PYTEST) -m engines --timeout 600 $(ARGS)

fuzz: $(FUZZ) ## fuzz the wire parser by coverage (ARGS='-max_total_time=600')
	@$(BIN)/python tools/fuzz_wire.py $(or $(ARGS),-max_total_time=60)

demo: $(DEV) $(PIPELINE) ## the promise in one minute: chat, two kill -9, three audits, a repaired copy (ARGS='--people 300')
	@$(BIN)/python -m examples.demo $(ARGS)

bench: bench-queue bench-core bench-gateway bench-pipeline bench-cluster bench-engines ## every benchmark

bench-queue: $(DEV) ## the queue beside Valkey Streams and NATS JetStream, with ratios
	@$(BIN)/python -m benchmarks.queue $(ARGS)

bench-core: $(DEV) ## the messaging core in one process: rates, memory, rebuilds
	@$(BIN)/python -m benchmarks.messaging $(ARGS)

bench-gateway: $(DEV) ## rooms, latency, idle connections, a storm: beside NATS core, Valkey pub/sub and websockets
	@$(BIN)/python -m benchmarks.gateway $(ARGS)

bench-pipeline: $(DEV) $(PIPELINE) ## the pipeline on five million records, beside Spark's own Parquet and DuckDB (ARGS=--quick)
	@$(BIN)/python -m benchmarks.pipeline $(ARGS)

bench-cluster: $(DEV) $(PIPELINE) ## roles as processes, durable messages, replicas beside JetStream R3, failovers, scaling (ARGS=--quick)
	@$(BIN)/python -m benchmarks.cluster $(ARGS)

bench-engines: $(DEV) ## Redis, Cassandra, Kafka and all three beside the embedded default (ARGS='--only embedded redis')
	@$(BIN)/python -m benchmarks.engines $(ARGS)

bench-ab: $(DEV) ## CPU per message beside an earlier commit, with a 95 % interval (ARGS='--base REV')
	@$(BIN)/python -m benchmarks.ab $(ARGS)

docs: $(DEV) ## write the generated files: examples/pixiu.toml, tables in docs/, features, dashboard, alerts, compose
	@$(BIN)/python -m tools.make_reference
	@$(BIN)/python -m tools.make_features
	@$(BIN)/python -m tools.make_dashboards
	@$(BIN)/python -m tools.make_compose

proto: $(DEV) ## make src/pixiu/model/*_pb2.py from the .proto files beside them
	@$(BIN)/python -m grpc_tools.protoc -Isrc/pixiu/model --python_out=src/pixiu/model --pyi_out=src/pixiu/model pixiu.proto frames.proto
	@$(BIN)/python -m grpc_tools.protoc -Isrc --python_out=src --pyi_out=src $(patsubst src/%,%,$(wildcard src/pixiu/model/gomsg/*.proto))

LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links --no-strip-extras

lock: $(DEV) ## renew the hash-pinned requirements/*.txt from the *.in files
	@cd requirements && for name in base build dev fuzz pipeline uv; do \
		echo "locking $$name"; ../$(LOCK) --upgrade $$name.in -o $$name.txt || exit 1; done
	@! grep -nE 'https?://' requirements/*.txt

clean: ## remove .venv, caches and builds (never data)
	@rm -rf $(VENV) build dist benchmarks/.build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(BASE):
	@tools/make_venv "$(PYTHON)" $(VENV)
	@echo "installing what Pixiu needs to run (once; about ten seconds)"
	@$(PIP) install --require-hashes -r requirements/base.txt -r requirements/build.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@rm -f $(VENV)/.base-*
	@touch $@

$(DEV): $(BASE)
	@tools/install $@ "installing what the tests need (once; about half a minute)" \
		--require-hashes -r requirements/dev.txt

$(PIPELINE): $(BASE)
	@tools/install $@ "installing what the pipeline needs: Spark and its company, 1 GB (once; a minute or two)" \
		--no-deps --require-hashes -r requirements/pipeline.txt

$(FUZZ): $(DEV)
	@tools/install $@ "installing the fuzzer (once)" --require-hashes -r requirements/fuzz.txt
