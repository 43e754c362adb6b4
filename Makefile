# Each target sets up .venv by itself and then runs one command; README.md gives the same commands for Windows.
#   make figures ARGS="median_baseline --preset smoke"     arguments for rlkit or pytest
#   make figures PYTHON=python3.12                         the Python that .venv is made with
#   make figures TORCH_INDEX=https://...                   the index that torch is taken from
PYTHON ?= python3
TORCH_INDEX ?=
ARGS ?=
ifeq ($(OS),Windows_NT)
BIN := .venv/Scripts
else
BIN := .venv/bin
endif

.PHONY: help setup figures record test test-all bench drift lab course wheelhouse site clean clean-all

help:
	@echo "make figures    run the notebooks, draw the figures (minutes)"
	@echo "make record     the same at full size: rewrites figures/ and data/recorded/ (up to 30 minutes a notebook)"
	@echo "make test       linters and quick tests (minutes)"
	@echo "make test-all   the slow tests that make test leaves out"
	@echo "make bench      measure against stock TRL, write benchmarks/README.md (40 minutes; ARGS=\"step --quick\")"
	@echo "make drift      the seams' tests on other releases of TRL and transformers (half an hour; ARGS=--write)"
	@echo "make lab        open the notebooks in JupyterLab"
	@echo "make course     student and solution notebooks into build/course, checked"
	@echo "make wheelhouse all packages into build/wheelhouse (ARGS=FOLDER), for machines without a network"
	@echo "make site       everything to read as static pages in build/site (a minute, executes nothing)"
	@echo "make setup      only make or update .venv"
	@echo "make clean      remove what was built, keep finished runs and .venv"
	@echo "make clean-all  remove finished runs and .venv too"

setup:
	@TORCH_INDEX="$(TORCH_INDEX)" $(PYTHON) .ci/setup_env.py

figures: setup
	$(BIN)/rlkit figures $(ARGS)

record: setup
	$(BIN)/rlkit figures --preset full $(ARGS)

test: setup
	$(BIN)/python -m pytest -m "not slow" -n 2 $(ARGS)

test-all: setup
	$(BIN)/python -m pytest -m slow -n 2 $(ARGS)

bench: setup
	$(BIN)/python -m benchmarks $(ARGS)

drift: setup
	$(BIN)/python -m tests.drift $(ARGS)

lab: setup
	$(BIN)/python -m jupyterlab notebooks $(ARGS)

course: setup
	$(BIN)/rlkit course $(ARGS)

wheelhouse: setup
	$(BIN)/rlkit wheelhouse $(or $(ARGS),build/wheelhouse)

site: setup
	$(BIN)/rlkit site $(ARGS)

# Finished runs (build/runs) took minutes to train: only clean-all removes them.
clean:
	@if [ -d build ]; then find build -mindepth 1 -maxdepth 1 ! -name runs -exec rm -rf {} +; fi
	rm -rf dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find . -path ./.venv -prune -o \( -name __pycache__ -o -name .ipynb_checkpoints \) -type d -prune -exec rm -rf {} +

clean-all: clean
	rm -rf build .venv
