# Two commands do everything on a fresh machine with git and python3: `make plan` and `make test`.
PYTHON ?= python3
VENV := .venv
TORCH_VENV := .venv-torch
FRAMEWORKS_VENV := .venv-frameworks
BIN := $(VENV)/bin
JOBS ?= 2
TORCH := torch==2.13.0
TRANSFORMERS := transformers==5.24.0
PIP_FLAGS := --quiet --disable-pip-version-check
MODEL ?= llama-3.1-70b
CLUSTER ?= h100-sxm:512

.PHONY: help plan test fast judge test-frameworks gradsync lint types imports doctest locale format bench accuracy change size clean

help:
	@echo "make plan    create $(VENV), install, plan $(MODEL) on $(CLUSTER)"
	@echo "make test    everything that CI checks: lint, types, imports, doctests, tests, judges"
	@echo "make fast    the core tests only        make judge   the tests against real torch and transformers"
	@echo "make change  what this checkout predicts otherwise than BASE (default origin/main, else main)"
	@echo "make gradsync  the tests of gradient synchronisation on real processes (two to five minutes)"
	@echo "make test-frameworks    configurations judged by the frameworks' own parsers"
	@echo "make accuracy  fit the time model, leave every source out once, check the bars (minutes)"
	@echo "make lint | types | imports | doctest | format | locale | bench | size | clean"

plan: $(VENV)/.core
	$(BIN)/meshwright plan $(MODEL) --cluster $(CLUSTER) --tokens 15T

$(VENV)/bin/python:
	bash tools/make_venv.sh "$(PYTHON)" $(VENV)

$(VENV)/.core: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install $(PIP_FLAGS) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[dev,fit]'
	@touch $@ $(VENV)/.core

$(TORCH_VENV)/bin/python:
	bash tools/make_venv.sh "$(PYTHON)" $(TORCH_VENV)

$(TORCH_VENV)/.judge: $(TORCH_VENV)/bin/python pyproject.toml
	bash tools/install_judges.sh $(TORCH_VENV) $(TORCH) $(TRANSFORMERS)
	@touch $@

$(FRAMEWORKS_VENV)/bin/python:
	bash tools/make_venv.sh "$(PYTHON)" $(FRAMEWORKS_VENV)

$(FRAMEWORKS_VENV)/.judge: $(FRAMEWORKS_VENV)/bin/python pyproject.toml tools/install_frameworks.sh
	bash tools/install_frameworks.sh $(FRAMEWORKS_VENV) $(TORCH) $(TRANSFORMERS)
	@touch $@

test: lint types imports doctest fast judge test-frameworks gradsync size

fast: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) -q

judge: $(TORCH_VENV)/.judge
	$(TORCH_VENV)/bin/python -m pytest -q -o addopts="--strict-markers --import-mode=importlib" -m judge_torch tests/judges

gradsync: $(TORCH_VENV)/.judge
	$(TORCH_VENV)/bin/python -m pytest -q -o addopts="--strict-markers --import-mode=importlib" -m gradsync tests/gradsync

test-frameworks: $(FRAMEWORKS_VENV)/.judge
	$(FRAMEWORKS_VENV)/bin/python -m pytest -q -o addopts="--strict-markers --import-mode=importlib" -m judge_frameworks tests/judges

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.dev
	$(BIN)/mypy

imports: $(VENV)/.dev
	$(BIN)/lint-imports

doctest: $(VENV)/.dev
	$(BIN)/python -m pytest -q -o addopts="--strict-markers" --doctest-modules src/meshwright/formulas src/meshwright/units.py

locale: $(VENV)/.dev
	$(BIN)/python tools/catalogue.py

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/search_speed.py
	$(BIN)/python benchmarks/scale_cost.py
	$(BIN)/python benchmarks/korthikanti.py
	$(BIN)/python benchmarks/llama3_405b.py
	test ! -d ../shared || $(BIN)/python benchmarks/measured_runs.py ../shared/validation/measured_runs.csv
	test ! -d ../shared || $(BIN)/python benchmarks/memory_runs.py ../shared/validation/measured_runs.csv ../shared/validation/memory_small_runs.csv
	test ! -d ../shared || $(BIN)/python benchmarks/fit_collectives.py ../shared --check
	test ! -d ../shared || $(BIN)/python benchmarks/fit_kernels.py ../shared/validation/kernel_efficiency.csv
	$(BIN)/python benchmarks/evaluate_speed.py

change: $(VENV)/.dev
	$(BIN)/python tools/prediction_change.py $(BASE)

accuracy: $(VENV)/.dev
	$(BIN)/python benchmarks/fit_step_time.py ../shared/validation/measured_runs.csv --ablation

size:
	bash tools/install_size.sh "$(PYTHON)"

clean:
	rm -rf $(VENV) $(TORCH_VENV) $(FRAMEWORKS_VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
