# Two commands are enough: `make demo` and `make test`. Each does its own set-up on a machine with Python 3.11+ and make.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SEED ?= 1
MINUTES ?= 10
RUNS ?= 200
RECORDS ?= 100000
SECONDS ?= 300
JOBS ?= 2
ARGS ?=

.PHONY: help install hooks demo quick test test-pythons test-sparks interop-kafka test-full soak check simulate bench bench-quick site looks release clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name one with PYTHON=..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(STAMP)

install: $(STAMP) ## .venv with everything for development

hooks: $(STAMP) ## what `make check` checks, before every commit
	@$(BIN)/pre-commit install

demo: $(STAMP) ## the exactly-once Spark job on real flights, through three kills (SEED=1 ARGS="--offline")
	@$(BIN)/oncelog demo --seed $(SEED) $(ARGS)

# The rooms that decide, and the log: nothing here starts a broker.
QUICK := $(addprefix tests/unit/,core protocol replication coordinator transaction group controller security storage \
	client/machines) tests/scenarios

quick: $(STAMP) ## the pure rooms and storage, with few random examples (under 20 seconds)
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -q -n $(JOBS) -p tests.support.quick \
		-m "not slow and not alone and not soak" --hypothesis-profile quick $(QUICK) $(ARGS)

test: $(STAMP) ## unit, interop, crash and Spark tests (under 10 minutes with JOBS=2)
	@$(BIN)/python -m tests.support.suite --jobs $(JOBS) $(ARGS)

test-pythons: $(STAMP) ## the tests on each Python from 3.11 on that is here (ARGS="tests/unit tests/scenarios")
	@$(BIN)/nox -s pythons -- $(ARGS)

test-sparks: $(STAMP) ## the pipeline's tests on each PySpark that is taken, and the refusal of older ones
	@$(BIN)/nox -s sparks refused_spark -- $(ARGS)

interop-kafka: $(STAMP) ## the suite of stock clients against Apache Kafka (fetched from Maven Central)
	@$(BIN)/python -m pytest -q tests/interop --peer kafka $(ARGS)

test-full: $(STAMP) ## everything, with its rows in docs/evidence.md
	@$(BIN)/python -m tests.support.full $(ARGS)

soak: $(STAMP) ## MINUTES of load with the broker killed every 5 to 15 s, SECONDS of a cluster under faults on each store, RECORDS copied by each stock client, RUNS of Spark jobs
	@$(BIN)/python -m tests.support.soak --minutes $(MINUTES) --seed $(SEED) $(ARGS)
	@$(BIN)/python -m tests.support.cluster_soak --store sqlite --seconds $(SECONDS) --seed $(SEED)
	@$(BIN)/python -m tests.support.cluster_soak --store zookeeper --seconds $(SECONDS) --seed $(SEED)
	@$(BIN)/python -m tests.support.copy_soak --records $(RECORDS) --seed $(SEED)
	@$(BIN)/python -m tests.spark.soak --runs $(RUNS) --seed $(SEED)

check: $(STAMP) ## what CI checks: format, lint, types, layers
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m tests.support.any_share
	@$(BIN)/lint-imports
	@$(BIN)/python -m tests.support.style

simulate: $(STAMP) ## search for defects under virtual time (ARGS="--runs 500 --profile power")
	@$(BIN)/oncelog simulate $(or $(ARGS),--runs 500)

bench: $(STAMP) ## Oncelog beside Apache Kafka (fetched from Maven Central)
	@$(BIN)/python -m bench $(ARGS)

bench-quick: $(STAMP) ## counts and CPU of these sources beside a commit (ARGS="--base main~5")
	@$(BIN)/python -m bench.quick $(ARGS)

site: export NO_MKDOCS_2_WARNING = 1
site: $(STAMP) ## the documentation as a site, in build/site
	@$(BIN)/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html"

looks: export NO_MKDOCS_2_WARNING = 1
looks: $(STAMP) ## every page of the site in Chromium: tables, widths, contrast (ARGS="--pictures FOLDER")
	@$(BIN)/python -m tests.support.looks $(ARGS)

release: $(STAMP) ## sdist and wheel in dist/, checked up to the upload (ARGS=--rehearse)
	@$(BIN)/python -m tests.support.release $(ARGS)

clean: ## what the other targets made, but not .venv
	rm -rf .cache build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
