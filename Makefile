# make run    all set-up, then the app on http://$(HOST):$(PORT)
# make test   all set-up, then lint and every test
# make setup  only the environment and the embedded model
# make lint | format | clean
#
# Variables: PYTHON=python3.12  VENV=.venv  HOST=127.0.0.1  PORT=7860
#   PIP_ARGS   options for pip, such as an index with CPU builds of torch (see README)
#   PYTEST_ARGS  options for pytest, such as -k or -x

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := run
.PHONY: run test setup setup-dev model chromium lint format clean

VENV ?= .venv
HOST ?= 127.0.0.1
PORT ?= 7860
PIP_ARGS ?=
PYTEST_ARGS ?=
CI ?= false
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

PY := $(VENV)/bin/python
APT_INSTALL := apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends
IS_ROOT_WITH_APT := [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null
HAS_CHROMIUM := command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null

# A stamp's name holds what it was made from: when that changes, the stamp is missing and pip runs again.
RUN_STAMP := $(VENV)/.installed-run-$(shell cat requirements.txt constraints.txt | cksum | cut -d' ' -f1)
DEV_STAMP := $(VENV)/.installed-dev-$(shell cat requirements.txt requirements-dev.txt constraints.txt | cksum | cut -d' ' -f1)

run: setup
	@echo "== SpecViz on http://$(HOST):$(PORT) (Ctrl-C stops it)"
	@GRADIO_SERVER_NAME=$(HOST) GRADIO_SERVER_PORT=$(PORT) $(PY) app.py

test: setup-dev model chromium lint
	@echo "== Tests"
	@$(PY) -m pytest $(PYTEST_ARGS)

setup: $(RUN_STAMP) model

setup-dev: $(DEV_STAMP)

model: | $(RUN_STAMP)
	@$(PY) -m specviz fetch

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

# make test installs everything in one go: the dev stamp brings the run stamp along.
ifneq ($(filter test setup-dev lint format,$(MAKECMDGOALS)),)
$(RUN_STAMP): $(DEV_STAMP)
	@touch $@
else
$(RUN_STAMP): requirements.txt constraints.txt
	$(call install,requirements.txt,$@)
endif

$(DEV_STAMP): requirements.txt requirements-dev.txt constraints.txt
	$(call install,requirements-dev.txt,$@)

# $(1) = requirements file, $(2) = stamp. The mark .installing outlives an interrupted try, and the next one starts over.
define install
	@$(call make_venv)
	@echo "== Installing $(1) into $(VENV) (minutes the first time)"
	@if ! command -v nvidia-smi >/dev/null && [ "$$(uname -s)" = Linux ] && [ -z "$(PIP_ARGS)" ]; then \
		echo "   No NVIDIA GPU here: should pip take a CUDA build of torch (gigabytes), stop it and give PIP_ARGS, see README."; fi
	@touch $(VENV)/.installing
	@$(PY) -m pip install --disable-pip-version-check --quiet --progress-bar on $(PIP_ARGS) -r $(1) -c constraints.txt
	@rm -f $(VENV)/.installing $(VENV)/.installed-*
	@touch $(2)
endef

define make_venv
	if [ -z "$(PYTHON)" ]; then \
		echo "Python 3.11 or newer is needed and none was found: install it, or give PYTHON=/path/to/python3." >&2; exit 1; fi; \
	if [ -x $(PY) ] && [ ! -e $(VENV)/.installing ] && $(PY) -m pip --version >/dev/null 2>&1; then exit 0; fi; \
	if ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
		if $(IS_ROOT_WITH_APT); then \
			echo "== Installing python3-venv"; $(APT_INSTALL) python3-venv; \
		else \
			echo "$(PYTHON) cannot make virtual environments: run 'apt-get install python3-venv' as root." >&2; exit 1; fi; fi; \
	echo "== Making a virtual environment in $(VENV) with $$($(PYTHON) --version)"; \
	$(PYTHON) -m venv --clear $(VENV)
endef

chromium:
	@if $(HAS_CHROMIUM); then exit 0; fi; \
	if $(IS_ROOT_WITH_APT); then \
		echo "== Installing Chromium for the browser tests"; \
		{ $(APT_INSTALL) chromium fonts-dejavu-core && $(HAS_CHROMIUM); } && exit 0; fi; \
	echo "Chromium is missing, so the browser tests are skipped: 'apt-get install chromium' as root brings it." >&2; \
	[ "$(CI)" != true ]
