.DEFAULT_GOAL := help
# The serving stack: 0.26, or 0.30 with an environment and tests of its own.
export STACK ?= 0.26
VENV_0.26 := .venv
VENV_0.30 := .venv-0.30
TESTS_0.26 :=
BOTH := exactness matrix stress spawned_stage pipeline
TESTS_0.30 := tests/stack30 $(BOTH:%=tests/stack/test_%.py) tests/unit softnpu/tests
BIN := $(VENV_$(STACK))/bin
TESTS := $(TESTS_$(STACK))
export OMP_NUM_THREADS := 1

.PHONY: help setup demo test test-compat test-gpu test-long lint types bench-limits mutants soak clean

help:  ## show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup:  ## make .venv with the pinned stack, the soft NPU and this project (STACK=0.30: .venv-0.30)
	@tools/setup_env.sh

demo: setup  ## K=1 against K=8 on the soft NPU
	@$(BIN)/kstep-shim demo

test: setup  ## the tests (STACK=0.30: those of that stack)
	$(BIN)/python -m pytest -n 2 --dist loadfile $(TESTS)

test-compat:  ## what needs no stack, on Python 3.11 and 3.12 with wrapt 1.17, 2.0 and the newest
	@tools/test_compat.sh

test-long: setup test-compat  ## test-compat, the exactness matrix and all that takes long
	$(BIN)/python -m pytest -m long -n 2 --dist worksteal --durations 40 -v $(TESTS)

test-gpu:  ## on a GPU, in an environment that has the CUDA stack: PYTHON=/path/to/python
	$(or $(PYTHON),python3) -m pytest -m gpu tests/gpu -v -rs

mutants: setup  ## switch each guard off and see its test turn red
	PYTHONPATH=tests $(BIN)/python -m support.mutants

soak: setup  ## 20,000 engine steps of random traffic, K=2 to 16, five seeds (hours)
	PYTHONPATH=tests $(BIN)/python -m support.soak

bench-limits: setup  ## what the shim costs where it is off (medians of 20)
	$(BIN)/python benchmarks/limits.py

lint: setup  ## formatting and lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup  ## static types
	$(BIN)/mypy

clean:  ## remove the environment and caches
	rm -rf .venv .venv-* build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
