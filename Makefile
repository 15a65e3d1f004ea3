# Everything starts from a clean clone: each target makes its own environment in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := CMakeLists.txt pyproject.toml $(shell find allocators/native -name '*.?pp')

.PHONY: demo test lint traces check-traces stub wheel clean

demo: $(VENV)/.demo  ## compare every allocator on a bundled workload; writes report.html
	$(BIN)/allocbench compare gpt2-train --device sim:80GiB --html report.html

test: $(VENV)/.test  ## the whole test suite
	$(BIN)/python -m pytest

lint: $(VENV)/.lint  ## ruff, mypy, clang-format
	$(BIN)/pre-commit run --all-files

traces: $(VENV)/.test  ## re-create the bundled traces, byte for byte
	$(BIN)/python -m workloads.catalog

check-traces: $(VENV)/.test  ## re-create the bundled traces elsewhere, and compare the bytes
	$(BIN)/python -m workloads.catalog --check

stub: $(VENV)/.test  ## re-create the type stub of the native core
	$(BIN)/python -m nanobind.stubgen -q -m allocators._core -o allocators/_core.pyi

wheel:  ## build a wheel into dist/
	$(PYTHON) -m pip wheel --no-deps -w dist .

clean:
	rm -rf $(VENV) build dist report.html

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(NATIVE) | $(BIN)/pip
	$(BIN)/pip install --quiet --editable '.[report]'
	touch $@

$(VENV)/.test: $(NATIVE) | $(BIN)/pip
	$(BIN)/pip install --quiet --editable '.[test]'
	touch $@ $(VENV)/.demo

$(VENV)/.lint: $(VENV)/.test
	$(BIN)/pip install --quiet --editable '.[test,lint]'
	touch $@
