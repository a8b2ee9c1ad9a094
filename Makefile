# Every target sets up what it needs in the virtual environment $(VENV); nothing is installed outside it.
# PYTHON names the interpreter; pip takes its index and its other settings from the environment and its configuration.
PYTHON ?= python3
VENV ?= .venv
BUILD ?= build

BIN := $(VENV)/bin
RUN := $(BIN)/python
KORCH := $(BIN)/korch
DESCRIPTION := pyproject.toml setup.cfg

SECONDS := 600
SEED := 0

DEMO_MODEL := ppocr_rec
DEMO_SHAPE := x=1x3x48x320
DEMO_IN := $(BUILD)/models/$(DEMO_MODEL).onnx
DEMO_OUT := $(BUILD)/demo/$(DEMO_MODEL).onnx

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint format fuzz compat clean

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.run ## optimize, verify and profile a real model (PP-OCRv4 text recognition), about 10 minutes the first time
	$(RUN) models/fetch.py $(DEMO_MODEL) -o $(BUILD)/models
	@mkdir -p $(dir $(DEMO_OUT))
	$(KORCH) optimize $(DEMO_IN) --shape $(DEMO_SHAPE) --budget 6m -o $(DEMO_OUT)
	$(KORCH) verify $(DEMO_IN) $(DEMO_OUT) --shape $(DEMO_SHAPE)
	$(KORCH) profile $(DEMO_OUT) --against $(DEMO_IN) --shape $(DEMO_SHAPE)

test: lint ## check style, types and import rules, and run all tests
	$(RUN) -m pytest -n auto

lint: $(VENV)/.dev ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev ## bring the source into its usual form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

fuzz: $(VENV)/.dev ## look for random models that korch changes; SECONDS=600 and SEED=0 say how long and which
	$(RUN) scripts/fuzz.py --seconds $(SECONDS) --seed $(SEED)

compat: $(VENV)/.run $(DEMO_OUT) ## run the demo's output on several versions of ONNX Runtime, each in an environment of its own
	$(RUN) scripts/compat.py $(DEMO_OUT)

$(DEMO_OUT):
	$(MAKE) demo

clean: ## remove what these targets made, the environment included
	rm -rf $(BUILD) $(VENV)

$(VENV)/.run: $(VENV)/.made $(DESCRIPTION)
	$(RUN) -m pip install --quiet --editable '.[cpu,models]'
	@touch $@

$(VENV)/.dev: $(VENV)/.made $(DESCRIPTION)
	$(RUN) -m pip install --quiet --editable '.[cpu,models,dev]'
	@touch $@

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "korch needs Python 3.11 or newer; name one with: make PYTHON=python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "This Python makes no virtual environments; install what is missing with: apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@
