# `make` lists the targets. Everything runs in $(VENV), made once and again when its inputs change.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup run test lint bench clean

help: ## List the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

setup: $(STAMP) ## Make the virtual environment and install rayfl into it (the other targets do this by themselves)

run: $(STAMP) ## Run the main job, quick form, on generated data: femnist_cyclic in about a minute
	$(BIN)/python -m rayfl.scenario femnist_cyclic --quick data.source=generated

test: $(STAMP) ## Run the tests in two processes
	$(BIN)/python -m pytest -n 2 --dist loadgroup

lint: $(STAMP) ## Check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP) ## Measure speed against bare PyTorch, hops, start-up and memory
	$(BIN)/python -m tools.bench

clean: ## Remove virtual environments, caches and build outputs; runs/ stays
	rm -rf .venv* build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "rayfl needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1); try: make setup PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
