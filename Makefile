# Every target sets up what it needs in the virtual environment $(VENV); nothing is installed outside it.
# PYTHON names the interpreter; pip takes its index and its other settings from the environment and its configuration.
PYTHON ?= python3
VENV ?= .venv
BUILD ?= build

BIN := $(VENV)/bin
RUN := $(BIN)/python
KORCH := $(BIN)/korch
DESCRIPTION := pyproject.toml setup.cfg

# A processor without fused products and sums; functions keep their bounds there too.
OLDEST := $(if $(filter x86_64,$(shell uname -m)),x86-64,native)

ARM_CXX := aarch64-linux-gnu-g++
ARM_EMULATOR := qemu-aarch64
ARM_TESTS := $(addprefix tests/unit/codegen/test_,generated_kernels.py vector_loops.py element_types.py random_bodies.py)

SECONDS := 600
SEED := 0

MODELS ?= $(BUILD)/models

DEMO_MODEL := ppocr_rec
DEMO_SHAPE := x=1x3x48x320
DEMO_IN := $(BUILD)/models/$(DEMO_MODEL).onnx
DEMO_OUT := $(BUILD)/demo/$(DEMO_MODEL).onnx

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test exhaustive math aarch64 lint format conformance conformance-update fuzz compat models acceptance numerics bench bench-quick cuda-check gpu-plans gpu-check clean

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.run ## optimize, verify and profile a real model (PP-OCRv4 text recognition), about 10 minutes the first time
	$(RUN) models/fetch.py $(DEMO_MODEL) -o $(BUILD)/models
	@mkdir -p $(dir $(DEMO_OUT))
	$(KORCH) optimize $(DEMO_IN) --shape $(DEMO_SHAPE) --budget 6m -o $(DEMO_OUT)
	$(KORCH) verify $(DEMO_IN) $(DEMO_OUT) --shape $(DEMO_SHAPE)
	$(KORCH) profile $(DEMO_OUT) --against $(DEMO_IN) --shape $(DEMO_SHAPE)

test: lint ## check style, types and import rules, and run all tests
	$(RUN) -m pytest -n auto

exhaustive: $(VENV)/.dev ## run the tests that take too long for every change, about half an hour
	$(RUN) -m pytest -n auto -m exhaustive

math: $(VENV)/.run ## compare the elementary functions of kernels with double precision, at every float, an hour or two
	$(RUN) -m scripts.vector_math
	$(RUN) -m scripts.vector_math --march $(OLDEST)

aarch64: $(VENV)/.dev ## build kernels for 64-bit ARM and run their tests in an emulator; needs g++-aarch64-linux-gnu and qemu-user
	$(RUN) -m scripts.vector_math --cxx $(ARM_CXX) --march armv8-a --emulator $(ARM_EMULATOR) --stride 20011
	KORCH_CXX=$(ARM_CXX) KORCH_TEST_PROCESSOR=armv8-a KORCH_TEST_EMULATOR=$(ARM_EMULATOR) \
	  $(RUN) -m pytest -n auto $(ARM_TESTS)

lint: $(VENV)/.dev ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev ## bring the source into its usual form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

conformance: $(VENV)/.run ## optimize all backend tests of onnx and compare with ONNX Runtime, about 10 minutes the first time
	$(RUN) -m scripts.conformance

conformance-update: $(VENV)/.run ## the same, and rewrite what is expected from now on
	$(RUN) -m scripts.conformance --update

fuzz: $(VENV)/.dev ## look for random models that korch changes; SECONDS=600 and SEED=0 say how long and which
	$(RUN) scripts/fuzz.py --seconds $(SECONDS) --seed $(SEED)

compat: $(VENV)/.run $(DEMO_OUT) ## run the demo's output on several versions of ONNX Runtime, each in an environment of its own
	$(RUN) scripts/compat.py $(DEMO_OUT)

models: $(VENV)/.run ## fetch and make every model that this environment can have; installs torch for some of them, 6 GB
	-$(RUN) -m pip install --quiet --editable '.[cpu,models,export]'
	$(RUN) models/fetch.py --all -o $(BUILD)/models

acceptance: models ## optimize, verify and time every model, hours; ends with 1 if one differs or is slower
	$(RUN) scripts/acceptance.py $(BUILD)/models -o $(BUILD)/acceptance

numerics: $(VENV)/.run ## hold what `make acceptance` wrote against double precision; ends with 1 if one is twice as far off
	$(RUN) scripts/numerics.py $(BUILD)/models $(BUILD)/acceptance

$(DEMO_OUT):
	$(MAKE) demo

bench: models $(BUILD)/tvm-venv/.made ## run every benchmark and write docs/benchmarks.md; hours, alone; MINUTES=120 ends sooner, to be continued
	$(RUN) -m pip install --quiet --editable '.[cpu,models,bench]'
	$(RUN) benchmarks/run.py --models $(BUILD)/models --journal benchmarks/results/full.journal.jsonl \
	  --runtimes openvino,torch,tvm --python tvm=$(BUILD)/tvm-venv/bin/python $(if $(MINUTES),--minutes $(MINUTES))

bench-quick: $(VENV)/.run ## run a few benchmarks in about ten minutes; the page goes to $(BUILD)/bench
	$(RUN) models/fetch.py ppocr_rec ppocr_cls candy -o $(BUILD)/models
	$(RUN) benchmarks/run.py --quick --models $(BUILD)/models

cuda-check: $(BUILD)/cuda-venv/.made ## compile all kernels of models' plans for GPUs and run them on the CPU under sanitizers; MODELS=folder
	$(BUILD)/cuda-venv/bin/python -m scripts.cuda_check $(MODELS) -o $(BUILD)/cuda-check

gpu-plans: $(VENV)/.dev ## compile, on any machine, the kernels that gpu-check runs, into $(BUILD)/gpu-check
	$(RUN) -m scripts.prepare_gpu_check -o $(BUILD)/gpu-check

gpu-check: ## run them on the GPU of this machine, in under four minutes; needs numpy, ml_dtypes and CuPy in $(PYTHON)
	PYTHONPATH=src $(PYTHON) -m scripts.gpu_check $(BUILD)/gpu-check -o $(BUILD)/gpu-check.json

clean: ## remove what these targets made, the environment included
	rm -rf $(BUILD) $(VENV)

# onnxruntime-gpu cannot be where onnxruntime is.
$(BUILD)/cuda-venv/.made: $(DESCRIPTION)
	$(PYTHON) -m venv $(BUILD)/cuda-venv
	$(BUILD)/cuda-venv/bin/python -m pip install --quiet --editable '.[models,dev]' 'onnxruntime-gpu>=1.20'
	@touch $@

# Apache TVM has an environment of its own, so that what it needs does not change what the others have.
$(BUILD)/tvm-venv/.made:
	$(PYTHON) -m venv $(BUILD)/tvm-venv
	$(BUILD)/tvm-venv/bin/python -m pip install --quiet apache-tvm onnx
	@touch $@

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
