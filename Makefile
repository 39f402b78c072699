PYTHON ?= python3
VENV = .venv
ifeq ($(VENV),current)
PY := $(PYTHON)
INSTALL := $(PYTHON) -m helpers.make.environment
else ifeq ($(VENV),.venv)
PY := .venv/bin/python
INSTALL := $(PYTHON) helpers/make/install.py
else
$(error VENV may be current: the environment whose $(PYTHON) is on PATH; it is $(VENV))
endif
ROOT_USER := $(if $(filter 0,$(shell id -u)),--allow-root)

.PHONY: help install lab test test-versions run site progress kernels results address bench proof wheel doctor clean
.DEFAULT_GOAL := help

# files are UTF-8, whatever the locale: PyTorch writes the CUDA strings as that has it
lab test run bench: export PYTHONUTF8 = 1

help:  ## print this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22
	@echo "  VENV=current behind any of them: your own environment in the place of .venv"

install:  ## make .venv and install requirements.txt into it (the other targets do it too)
	@$(INSTALL)

lab: install  ## open JupyterLab at the first notebook
	@$(PY) -m jupyter lab $(ROOT_USER) --log-level=ERROR --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb $(LAB)

test: install  ## run every test and every notebook
	@$(PY) -m helpers.make.tests

test-versions: install  ## run a part of the tests with each PyTorch that the course takes
	@$(PY) -m helpers.make.versions $(V)

run: install  ## run the notebooks without a browser, as pages into .cache/html (one: make run NB=03)
	@$(PY) -m helpers.make.notebooks $(NB)

site: install  ## write the course as a website into .cache/site, from the notebooks as stored
	@$(PY) -m helpers.make.site

progress: install  ## show what of the notebooks is solved, and what comes next
	@$(PY) -m helpers.make.progress

kernels: install  ## write kernels/*.cu from the notebooks
	@$(PY) -m helpers.make.kernels

results: install  ## write README's tables, kernels/README.md and the figures in prose from the records
	@$(PY) -m helpers.make.readme

address:  ## write the course's public address into the notebooks and README
	@$(PYTHON) -m helpers.make.address

bench: install  ## time kernels/ against PyTorch and libraries, on a GPU (one file: make bench K=softmax)
	@$(PY) -m helpers.make.bench $(K)

proof: install  ## count the kernels of helpers/tests/proof again and write its README
	@$(PY) -m helpers.tests.proof

wheel: install  ## build the CPU backend as a wheel for other projects' tests, into dist/
	@$(PY) -m helpers.make.wheel

doctor: install  ## say what is missing for a run on the GPU, and the line that mends it
	@$(PY) -m helpers.doctor

clean:  ## remove builds, caches and downloads (.venv and your progress stay)
	rm -rf .pytest_cache .ruff_cache notebooks/*_trace.json
	find .cache -mindepth 1 -maxdepth 1 -not -name progress.json -exec rm -rf {} + 2>/dev/null || true
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
	find . -name .ipynb_checkpoints -not -path './.venv/*' -prune -exec rm -rf {} +
