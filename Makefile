# What a user types: make quickstart, make test. `make help` lists the rest.
PYTHON ?= python3
VENV ?= .venv
BASE ?= results
CONFIG ?= config/quickstart.yaml
BIN = $(VENV)/bin
MILABENCH = $(BIN)/milabench

.PHONY: help quickstart test check fmt e2e docs perf clean

help:
	@echo "make quickstart   install milabench into $(VENV), then install, prepare, run and report $(CONFIG)"
	@echo "make test         set up and run the tests"
	@echo "make check        formatting, lint, types"
	@echo "make e2e          the slow tests: real suites in real environments"
	@echo "make perf         programs that print speed ratios"
	@echo "make fmt          format the code"
	@echo "make docs         write the generated pages of docs/"
	@echo "make clean        remove $(VENV); environments and runs in $(BASE) stay"

# Byte code is kept next to the code, so that a benchmark does not time its own compilation.
export PYTHONDONTWRITEBYTECODE =

$(VENV)/.installed: pyproject.toml
	@echo "== making $(VENV) and installing milabench into it"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is older than 3.11; say make PYTHON=/path/to/python3.11"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: pyproject.toml benchmate/pyproject.toml $(VENV)/.installed
	@echo "== installing the development tools into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -e ./benchmate
	@touch $@

quickstart: $(VENV)/.installed
	@echo "== milabench install: environments and programs"
	@$(MILABENCH) install --config $(CONFIG) --base $(BASE)
	@echo "== milabench prepare: data and models"
	@$(MILABENCH) prepare --config $(CONFIG) --base $(BASE)
	@echo "== milabench run"
	@$(MILABENCH) run --config $(CONFIG) --base $(BASE)
	@echo "== milabench report"
	@$(MILABENCH) report --base $(BASE)

test: $(VENV)/.dev
	cd benchmate && $(abspath $(BIN))/python -m pytest -q
	$(BIN)/python -m pytest -q -m "not e2e"

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fmt: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

e2e: $(VENV)/.dev
	$(BIN)/python -m pytest -m e2e tests/e2e

perf: $(VENV)/.dev
	@for program in tests/perf/*.py; do echo "== $$program"; $(BIN)/python $$program || exit 1; done

docs: $(VENV)/.installed
	$(MILABENCH) config schema > docs/suite.schema.json

clean:
	rm -rf $(VENV)
