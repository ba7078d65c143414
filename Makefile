# make run    all set-up, then the app on http://$(HOST):$(PORT)
# make test   all set-up, then lint and every test
# make setup  only the environment and the embedded model
# make lint | format | clean
#
# Variables: PYTHON=python3.12  VENV=.venv  HOST=127.0.0.1  PORT=7860
#   PIP_ARGS     options for pip, such as an index with CPU builds of torch (see README)
#   PYTEST_ARGS  options for pytest, such as -k or -x

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := run
.NOTPARALLEL:
.PHONY: run test setup chromium lint format clean

VENV ?= .venv
HOST ?= 127.0.0.1
PORT ?= 7860
PIP_ARGS ?=
PYTEST_ARGS ?=
CI ?= false
IS_NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p $(IS_NEW_ENOUGH) && echo $$p && exit; done; echo python3)

PY := $(VENV)/bin/python
APT_INSTALL := apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends
IS_ROOT_WITH_APT := [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null
HAS_CHROMIUM := command -v chromium chromium-browser google-chrome >/dev/null

# A stamp's name holds what it was made from: when that changes, the stamp is missing and pip runs again.
RUN_STAMP := $(VENV)/.installed-run-$(shell cat requirements.txt constraints.txt | cksum | cut -d' ' -f1)
DEV_STAMP := $(VENV)/.installed-dev-$(shell cat requirements*.txt constraints.txt | cksum | cut -d' ' -f1)

run: setup
	@echo "== SpecViz on http://$(HOST):$(PORT) (Ctrl-C stops it)"
	@$(PY) app.py --host $(HOST) --port $(PORT)

test: $(DEV_STAMP) chromium lint
	$(fetch_model)
	@echo "== Tests"
	@OMP_WAIT_POLICY=passive $(PY) -m pytest -n logical --maxprocesses 4 --dist loadfile $(PYTEST_ARGS)

setup: $(RUN_STAMP)
	$(fetch_model)

lint: $(DEV_STAMP)
	@echo "== Lint and format check"
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

format: $(DEV_STAMP)
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

clean:
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUN_STAMP):
	$(make_venv)
	$(call install,requirements.txt)
	@touch $@

$(DEV_STAMP):
	$(make_venv)
	$(call install,requirements-dev.txt)
	@touch $@ $(RUN_STAMP)

chromium:
	@if $(HAS_CHROMIUM); then exit 0; fi; \
	if $(IS_ROOT_WITH_APT); then \
		echo "== Installing Chromium for the browser tests"; \
		{ $(APT_INSTALL) chromium fonts-dejavu-core && $(HAS_CHROMIUM); } && exit 0; fi; \
	echo "Chromium is missing, so the browser tests are skipped: 'apt-get install chromium' as root brings it." >&2; \
	[ "$(CI)" != true ]

# Without the model the page still plays recordings, and the tests that need it are skipped; CI wants all of it.
define fetch_model
	@echo "== The embedded model"
	@$(PY) -m specviz fetch || { status=$$?; [ $$status != 130 ] && [ "$(CI)" != true ]; }
endef

# The mark .installing outlives an interrupted try, and the next one starts with a new environment.
define install
	@echo "== Installing $(1) into $(VENV) (some minutes the first time)"
	@if [ "$$(uname -s)" = Linux ] && ! command -v nvidia-smi >/dev/null && [ -z "$(PIP_ARGS)" ] \
		&& ! ls -d $(VENV)/lib/python*/site-packages/torch >/dev/null 2>&1; then \
		echo "   No NVIDIA GPU here: should pip take a CUDA build of torch (gigabytes), stop it and give PIP_ARGS, see README."; fi
	@touch $(VENV)/.installing
	@$(PY) -m pip install --disable-pip-version-check $(PIP_ARGS) -r $(1) -c constraints.txt
	@rm -f $(VENV)/.installing $(VENV)/.installed-*
endef

define make_venv
	@if [ -x $(PY) ] && [ ! -e $(VENV)/.installing ] && $(PY) -m pip --version >/dev/null 2>&1; then exit 0; fi; \
	if ! $(PYTHON) $(IS_NEW_ENOUGH); then \
		echo "$(PYTHON) is not Python 3.11 or newer: install one, or give PYTHON=/path/to/python3." >&2; exit 1; fi; \
	if ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
		if $(IS_ROOT_WITH_APT); then \
			echo "== Installing python3-venv"; $(APT_INSTALL) python3-venv; \
		else \
			echo "$(PYTHON) cannot make virtual environments: run 'apt-get install python3-venv' as root." >&2; exit 1; fi; fi; \
	echo "== Making a virtual environment in $(VENV) with $$($(PYTHON) --version)"; \
	$(PYTHON) -m venv --clear $(VENV)
endef
