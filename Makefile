# `make help` says what each target does. Needs make and, for a fresh Debian, nothing else: see scripts/bootstrap.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help install install-spark run pipeline test test-long test-clients compatibility check audit docs dist bench bench-compare bench-trees clean dev

VENV := .venv
PIP := $(VENV)/bin/python -m pip --quiet --disable-pip-version-check
KERNEL := $(wildcard src/ketch/*/_kernel*.pyx src/ketch/*/_kernel*.pxi src/ketch/records/*.h src/ketch/lane/csrc/*.h)
MODULE := $(wildcard src/ketch/append_module/csrc/*)
PROJECT := pyproject.toml setup.py constraints.txt $(KERNEL) $(MODULE)
# pip shows nothing of a build that worked, and one without a compiler works.
SAY_KERNEL := $(VENV)/bin/python -c 'from ketch.kernels import KERNEL; KERNEL == "cython" or print("ketch: a Cython kernel was not built; its slower plain-Python twin is used.")'
ARGS ?=
# Of the console that `make run` starts, on loopback; empty for none.
CONSOLE_PORT ?= 8080
# Test processes: half of a test's time is waiting for servers and clients, so more than there are cores; one more costs 7 s
# of CPU time, most of it to collect the tests.
JOBS ?= 6
# A test that hangs where no signal of Python's reaches it takes its process with it, and the others go on.
HANGING := -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true

# Where this is set, each of the several hundred processes that the tests start would compile all its modules anew.
unexport PYTHONDONTWRITEBYTECODE

# Exact versions for the isolated build environment too (older and newer pip read it from different variables).
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_BUILD_CONSTRAINT := $(CURDIR)/constraints.txt

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

install: $(VENV)/.installed ## Install Ketch into .venv (.venv/bin/ketch)

install-spark: $(VENV)/.installed-spark ## Install Ketch with the Spark pipeline, and Java
	@scripts/java

run: $(VENV)/.installed ## Start a broker on 127.0.0.1:9092, its console on :8080 (CONSOLE_PORT=); options: make run ARGS="--port 0 --data-dir DIR"
	@$(if $(CONSOLE_PORT),KETCH_CONSOLE=$${KETCH_CONSOLE:-true} KETCH_HTTP_PORT=$${KETCH_HTTP_PORT:-$(CONSOLE_PORT)}) exec $(VENV)/bin/ketch serve $(ARGS)

pipeline: $(VENV)/.installed-spark ## Run the example pipeline on Spark; options: make pipeline ARGS="--orders 200000 --cluster"
	@scripts/java
	@exec $(VENV)/bin/python -m examples.orders $(ARGS)

test: dev ## Run all tests but the long ones; a part: make test ARGS="tests/test_config.py -k port"
	@scripts/test-tools
	@scripts/java || echo "ketch: the tests of Spark are skipped." >&2
	$(VENV)/bin/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(HANGING) $(ARGS)

test-long: $(VENV)/.installed-long ## Run the long tests: faults, other clients' suites, pipelines; as many as fit: make test-long ARGS="--minutes 30"
	@scripts/test-tools
	@scripts/java || echo "ketch: the tests of Spark are skipped." >&2
	$(VENV)/bin/python -m pytest -m long $(ARGS)

test-clients: dev ## Run Kafka's clients and tools against Ketch (tests/clients/matrix); one: make test-clients ARGS="-k franz-go"
	@scripts/test-tools
	$(VENV)/bin/python -m pytest tests/clients/matrix -m "long or not long" $(ARGS)

compatibility: dev ## Run them all, keep the results and write docs/compatibility.md from them; some: ARGS="franz-go kcat"
	@scripts/test-tools
	$(VENV)/bin/python -m tests.clients.matrix $(ARGS)

check: dev ## Lint, format, types, layers
	@scripts/check

audit: dev ## Ask pip-audit about the pinned versions; it needs a package index and a database of vulnerabilities
	@$(VENV)/bin/python -m pip install -q pip-audit
	@$(VENV)/bin/pip-audit --no-deps --disable-pip -r constraints.txt

docs: $(VENV)/.installed-docs ## Build the documentation as a site, with search and the Python reference: build/site/index.html
	@scripts/site/javascript
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet --strict --config-file scripts/site/mkdocs.yml
	@echo "build/site/index.html"

dist: dev ## Build the sdist and a wheel for this Python into dist/
	KETCH_REQUIRE_NATIVE=1 $(VENV)/bin/python -m build --outdir dist .

bench: dev ## Measure Ketch beside Apache Kafka and raw Valkey, write BENCHMARKS.md and README's figures; ONLY=produce,latency  QUICK=1  ARGS="--rounds 1"
	@scripts/test-tools
	$(VENV)/bin/python -m bench $(if $(ONLY),--only "$(ONLY)") $(if $(QUICK),--quick) $(ARGS)

bench-compare: dev ## Show what changed between two runs: A=bench/results/x.json B=bench/results/y.json
	@$(VENV)/bin/python -m bench compare "$(A)" "$(B)"

bench-trees: dev ## Run Ketch from two checkouts by turns, fail where B is slower by 5 %: A=../before B=. ONLY=throughput,latency
	@$(VENV)/bin/python -m bench compare-trees "$(A)" "$(B)" $(if $(ONLY),--only "$(ONLY)") $(ARGS)

clean: ## Remove .venv, build and cache files (not ketch-data)
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
	rm -rf src/*.egg-info src/ketch/*/_kernel.c src/ketch/*/_kernel*.so src/ketch/append_module/_append*.so

dev: $(VENV)/.installed-dev

# Stamps live in the environment, so that they go when it goes.
$(VENV)/.created: scripts/bootstrap
	@scripts/bootstrap $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.created $(PROJECT)
	$(PIP) install --editable .
	@$(SAY_KERNEL)
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.created $(PROJECT)
	$(PIP) install --editable '.[dev]'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-spark

$(VENV)/.installed-docs: $(VENV)/.created $(PROJECT)
	$(PIP) install --editable '.[docs]'
	@touch $@ $(VENV)/.installed

# With what the declarative pipeline needs, which the other tests do without.
$(VENV)/.installed-long: $(VENV)/.created $(PROJECT)
	$(PIP) install --editable '.[dev,pipelines]'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-dev $(VENV)/.installed-spark

$(VENV)/.installed-spark: $(VENV)/.created $(PROJECT)
	$(PIP) install --editable '.[charts,spark]'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-spark
