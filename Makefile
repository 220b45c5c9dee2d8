# Two commands: `make demo` and `make test`. Each makes its own environment and installs what it needs.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed
BIN := $(VENV)/bin

.PHONY: demo test lint clean

demo: $(STAMP)
	$(BIN)/python examples/demo.py

test: $(STAMP)
	$(BIN)/pytest -q

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "nestwright needs Python 3.11 or newer; $(PYTHON) is older (set PYTHON=...)"; exit 2; }
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { rm -rf $(VENV); \
	  echo "no venv module: trying virtualenv (Debian and Ubuntu: apt-get install python3-venv)"; \
	  $(PYTHON) -m virtualenv $(VENV) || exit 2; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[tune-cpu,dev]'
	@touch $(STAMP)

clean:
	rm -rf $(VENV) build *.egg-info
