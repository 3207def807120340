# `make` lists the targets. Everything runs in $(VENV), created once; each target installs what it still needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Two processes share the tests, some of which take a minute. TESTS=tests/engine selects a folder.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder
TESTS ?= tests

# Some images set it. Each of Ray's processes would compile all that it imports, since uv compiles nothing.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run test test-all durations release-check docs figures lint bench constraints clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 19

run: $(VENV)/.run ## Run the main job, quick form, on generated data: femnist_cyclic in about a minute
	$(BIN)/python -m rayfl.scenario femnist_cyclic --quick data.source=generated

test: $(VENV)/.test ## Run the quick tests in two processes
	$(PYTEST) -m "not slow" $(TESTS)

test-all: $(VENV)/.test-all ## Run all tests in two processes
	$(PYTEST) $(TESTS)

durations: $(VENV)/.test-all ## Write tests/durations.json anew, when the quick tests have changed
	$(PYTEST) -m "not slow" --keep-durations --ignore tests/test_durations.py tests

release-check: $(VENV)/.test-all $(VENV)/.docs ## What CI leaves out: all tests, notebooks, a real cluster, kills (hours)
	$(PYTEST) tests
	$(MAKE) docs
	$(BIN)/python -m tools.check_cluster
	RAYFL_PREPARED_MIB=8192 $(BIN)/python -m pytest -s tests/data/prepared/test_memory.py
	$(BIN)/python -m tools.chaos

docs: $(VENV)/.docs ## Build the documentation in build/docs; NOTEBOOKS=off leaves out running its notebooks
	$(BIN)/sphinx-build -W --keep-going --jobs 2 --quiet $(if $(NOTEBOOKS),-D nb_execution_mode=$(NOTEBOOKS)) docs build/docs
	@echo "open build/docs/index.html"

figures: $(VENV)/.test-all ## Draw the figures of the documentation again, from the records that are kept
	$(BIN)/python -m tools.draw_figures

lint: $(VENV)/.lint ## Check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.run ## Measure speed against bare PyTorch, hops, start-up and memory
	$(BIN)/python -m tools.bench

setup: $(VENV)/.test-all $(VENV)/.docs $(VENV)/.lint ## Install all that the targets above need (they do this by themselves)

constraints: $(VENV)/.installer ## Write constraints.txt anew, with new versions for what is missing or no longer fits
	$(BIN)/uv pip compile pyproject.toml --universal --fork-strategy fewest --python-version 3.11 --all-extras \
		--group setup --group test-all --group mutants --group docs --group lint $(if $(UPGRADE),--upgrade) \
		--no-annotate --custom-compile-command 'make constraints' --quiet --output-file constraints.txt
	sed -i 's/ ;.*//' constraints.txt

clean: ## Remove virtual environments, caches and build outputs; runs/ stays
	rm -rf .venv* build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# uv is much faster than pip. If it is not available or finds no index (it does not read pip's configuration), pip
# installs the packages, in a version that supports dependency groups.
install = $(BIN)/uv pip install --python $(BIN)/python $(PINNED) $(1) || \
	{ $(PIP) install --upgrade -c constraints.txt pip && $(PIP) install $(PINNED) $(1); }
PINNED := -c constraints.txt --build-constraint constraints.txt
EXTRAS := .[huggingface,mlflow,tensorboard,text,tune,wandb]

$(VENV)/.run: $(VENV)/.installer
	$(call install,-e .)
	@touch $@

$(VENV)/.test: $(VENV)/.run
	$(call install,--group test)
	@touch $@

$(VENV)/.test-all: $(VENV)/.run
	$(call install,-e '$(EXTRAS)' --group test-all)
	@touch $@

$(VENV)/.docs: $(VENV)/.run
	$(call install,--group docs)
	@touch $@

$(VENV)/.lint: $(VENV)/.run
	$(call install,--group lint)
	@touch $@

$(VENV)/.installer: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "rayfl needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1); try: make setup PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt uv || echo "uv cannot be had here: pip installs"
	@touch $@
