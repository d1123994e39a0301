PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

# The platform and extras of .venv. The file keeps the last choice, so a plain `make` uses it again.
MADE := $(shell cat $(READY) 2>/dev/null)
PLATFORM ?= $(or $(word 1,$(MADE)),cpu)
EXTRAS ?= $(if $(MADE),$(word 2,$(MADE)),test)
CHOICE := $(strip $(PLATFORM) $(EXTRAS))

ifneq ($(words $(PLATFORM)) $(filter cpu cuda tpu,$(PLATFORM)),1 $(PLATFORM))
$(error PLATFORM: expected cpu, cuda or tpu, got '$(PLATFORM)')
endif
comma := ,
ifneq ($(filter-out bench compile docs gcs interop release test,$(subst $(comma), ,$(EXTRAS))),)
$(error EXTRAS: expected some of bench, compile, docs, gcs, interop, release, test, got '$(EXTRAS)')
endif

.PHONY: help environment reversal translation seeds claims smoke bench test test-all test-gpu fuzz lint check format docs release clean
.DEFAULT_GOAL := help

help:  ## print this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

environment: $(READY)  ## make .venv for PLATFORM=cpu (or cuda, tpu), with EXTRAS=test (or EXTRAS=test,bench)

reversal: $(READY)  ## train the default reversal experiment and print its result
	$(BIN)/fxf train --config=reversal --workdir=runs/reversal

translation: $(READY)  ## train the default translation experiment, print ten translations and its result
	$(BIN)/fxf train --config=translation --workdir=runs/translation

seeds: $(READY)  ## run small versions of all systems of the five seeds, and check each statement, in runs/seeds/
	$(BIN)/python -m experiments.seeds

claims: $(READY)  ## measure the claims of CLAIMS.md that a laptop can, two at a time, and fill its tables
	$(BIN)/python -m experiments.claims

smoke: $(READY)  ## try every config for a few steps, in minutes
	$(BIN)/python -m experiments.benchmarks.smoke

BENCH ?=
bench: $(READY)  ## compare the speed of fxf with its peers (needs EXTRAS=test,bench), into experiments/results/bench/
	$(BIN)/python -m experiments.benchmarks.bench $(BENCH)

test: $(READY)  ## run the tests
	$(BIN)/python -m pytest

test-all: $(READY)  ## also run tests that take minutes or need rare software; none may be skipped
	$(BIN)/python -m pytest -m 'not gpu' --no-skips

test-gpu: $(READY)  ## run the tests that need an NVIDIA GPU
	JAX_PLATFORMS=cuda,cpu XLA_PYTHON_CLIENT_PREALLOCATE=false $(BIN)/python -m pytest -m gpu --no-skips tests/gpu

fuzz: $(READY)  ## try new cases of the property tests
	$(BIN)/python -m pytest -qx -m hypothesis --hypothesis-profile=fuzz --hypothesis-seed=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')

lint: $(READY)  ## format check, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy fxf experiments configs

check: lint test  ## lint and test

format: $(READY)  ## format the code and fix what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## build the documentation as a site in build/site (needs EXTRAS=docs)
	$(BIN)/python docs/site.py

release: $(READY)  ## build wheel and source archive in build/release, and check both (needs EXTRAS=release)
	rm -rf build/release
	$(BIN)/python -m build --outdir=build/release .
	$(BIN)/python -m twine check --strict build/release/*

clean:  ## remove the environment and caches; runs/ stays
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

ifneq ($(MADE),$(CHOICE))
.PHONY: $(READY)
endif
# For another platform, .venv is made from scratch: JAX would still use the plugin of the last platform.
ifneq ($(word 1,$(MADE)),$(PLATFORM))
CLEAR := --clear
endif
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(CLEAR) .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[$(PLATFORM)$(addprefix $(comma),$(EXTRAS))]'
	@echo '$(CHOICE)' > $(READY)
