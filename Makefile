# Two commands: `make demo` and `make test`. Each makes its own environment and installs what it needs.
SHELL := /bin/bash
VENV := .venv
STAMP := $(VENV)/.installed
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
ifdef PYTHON
export PYTHON
endif

.PHONY: demo test lint clean

demo: $(STAMP)
	$(BIN)/python examples/demo.py

test: $(STAMP)
	$(BIN)/pytest -q -n 2

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(STAMP): pyproject.toml .ci/venv
	@.ci/venv $(VENV)
	@echo "installing nestwright and its dependencies into $(VENV) (a minute or two)"
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@$(BIN)/python -m pip install -qq -e '.[tune-cpu,optuna,onnx,fleet,sign,linalg,dev,ptx,cuda,mpi]'
	@touch $(STAMP)

clean:
	rm -rf $(VENV) build dist report *.egg-info
