# With no target: a list of the targets. Nothing but python3 and make is needed beforehand.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3
# uv of the machine if there is one, else one of our own in .uv/
UV := $(shell command -v uv 2>/dev/null || echo .uv/bin/uv)
RUN := .venv/bin/
STAMP := .venv/.installed
# In the order of the documents. Left out: before_after and one_class, which need an older checkout; consolidation, which needs 100 million rows.
BENCHMARKS := engine_reference closed_loop presets engine fleet store shared aging_store catalog aging helping server tables session sweep install

.PHONY: help install format lint types test-fast test test-all coverage demo bench docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.uv/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Endive needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12"; exit 2; }
	@$(PYTHON) -m venv .uv \
	  || { rm -rf .uv; echo "python3 cannot make virtual environments; on Debian: apt-get install python3-venv"; exit 2; }
	@echo "installing uv into .uv/"; .uv/bin/python -m pip install --quiet --disable-pip-version-check uv

$(STAMP): pyproject.toml uv.lock | $(filter .uv/bin/uv,$(UV))
	@echo "installing into .venv/"
	@$(UV) sync --frozen --all-extras --quiet --python $(PYTHON) 2>/dev/null \
	  || $(UV) sync --frozen --all-extras --quiet --python $(PYTHON) --system-certs   # where the network has a certificate of its own
	@touch $@

install: $(STAMP) ## install everything into .venv

format: $(STAMP) ## format the code
	$(RUN)ruff check --fix --quiet . ; $(RUN)ruff format --quiet .

lint: $(STAMP) ## ruff, and the layers of imports
	$(RUN)ruff check .
	$(RUN)ruff format --check .
	$(RUN)lint-imports

types: $(STAMP) ## mypy --strict
	$(RUN)mypy

test-fast: $(STAMP) ## the tests to run while working
	$(RUN)pytest -q -n auto --dist loadgroup -m "not slow and not campaign"

test: lint types ## lint, types and all tests but the campaigns
	$(RUN)pytest -q -n auto --dist loadgroup -m "not campaign"

test-all: lint types ## the same with the campaigns: many hours
	$(RUN)pytest -q -n auto --dist loadgroup

coverage: $(STAMP) ## the fast tests, with the lines and branches that they reach; build/coverage/index.html
	$(RUN)pytest -q -n auto --dist loadgroup -m "not slow and not campaign" --cov --cov-report=term:skip-covered --cov-report=html

docs: $(STAMP) ## the site, without a network; build/site/index.html
	$(RUN)python docs/site/build.py

demo: $(STAMP) ## run a small sweep and write its report, in about a minute
	$(RUN)endive demo

bench: $(STAMP) ## measure, for hours; writes benchmarks/results/*.json
	for name in $(BENCHMARKS); do $(RUN)python -m benchmarks.$$name || exit 1; done

clean: ## remove all files that make has made
	rm -rf .venv .uv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage build
