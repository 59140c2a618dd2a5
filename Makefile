# Every command of the README and of CONTRIBUTING. Each target sets up what it needs: a virtual
# environment in .venv, with torch's CPU build where no NVIDIA driver answers.

SHELL := /bin/sh
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# The repository's own folders must never shadow installed packages (Hugging Face has a `kernels`).
export PYTHONSAFEPATH := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
DEMO_STAMP := $(VENV)/.lossbench-demo
DEV_STAMP := $(VENV)/.lossbench-dev
AXE := $(VENV)/axe/node_modules/axe-core/axe.min.js
CPU_INDEX := https://download.pytorch.org/whl/cpu
FORMATTED := kernels service worker web tests docs docker

HAS_GPU = nvidia-smi -L 2>/dev/null | grep -q GPU
TEST_STEPS := check-lint check-format check-types check-imports check-tests
FULL_STEPS := check-lint check-format check-types check-imports check-all-tests

# One line before a step, one after it with its seconds; a failing step is named.
define run_steps
	@began=$$(date +%s); \
	for step in $(2); do \
	  printf '\n== %s\n' "$$step"; from=$$(date +%s); \
	  if ! $(MAKE) $$step; then \
	    printf '\nmake $(1): FAILED in %s after %d s\n' "$$step" $$(( $$(date +%s) - began )); exit 1; \
	  fi; \
	  printf '== %s: ok, %d s\n' "$$step" $$(( $$(date +%s) - from )); \
	done; \
	printf '\nmake $(1): all steps passed in %d s\n' $$(( $$(date +%s) - began ))
endef

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) \
	  | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

.PHONY: demo
demo: $(DEMO_STAMP) ## measure real kernels on this machine and show the page (DEMO_ARGS=--exit)
	$(BIN)/lossbench demo $(DEMO_ARGS)

.PHONY: test
test: $(DEV_STAMP) ## lint, types, import rules and the tests: what CI runs
	$(call run_steps,test,$(TEST_STEPS))

.PHONY: test-full
test-full: $(DEV_STAMP) ## the same with the tests marked slow
	$(call run_steps,test-full,$(FULL_STEPS))

.PHONY: lint
lint: $(DEV_STAMP) ## ruff, types and import rules, without the tests
	$(call run_steps,lint,$(filter-out check-tests,$(TEST_STEPS)))

.PHONY: format
format: $(DEV_STAMP) ## rewrite the code as the linter wants it
	$(BIN)/ruff format $(FORMATTED)
	$(BIN)/ruff check --fix $(FORMATTED)

.PHONY: docs
docs: $(DEV_STAMP) ## write the generated pages of docs/reference anew
	$(BIN)/python docs/generate.py

.PHONY: figures
figures: $(DEV_STAMP) ## print how often verdicts are wrong, simulated (half a minute)
	$(BIN)/python -P tests/simulation/figures.py

# Service, workers and databases as real processes; FAULTS="--only zombie --times 1" chooses.
FAULTS ?= --times 3
.PHONY: reliability
reliability: $(DEV_STAMP) ## inflict every fault of the engine and print what it cost (an hour; FAULTS=)
	$(BIN)/python -P tests/reliability/faults.py $(FAULTS)
	$(BIN)/python -P tests/reliability/sharing.py

# A filled database stays in .venv, so that a second run only measures; RESULTS and SCALE_URL choose
# another one. SCALE_URL=postgresql fills and measures a server that is started for it.
RESULTS ?= 1000000
SCALE_URL ?= sqlite:///$(CURDIR)/$(VENV)/scale-$(RESULTS).db
.PHONY: scale
scale: $(DEV_STAMP) ## print how fast pages and API are over 1,000,000 results (RESULTS=, SCALE_URL=)
	$(BIN)/python -P tests/benchmarks/scale.py $(SCALE_URL) --results $(RESULTS) --imports 30 --export

.PHONY: compare-peers
compare-peers: $(DEV_STAMP) $(VENV)/lnt/bin/lnt ## print lossbench beside LNT 0.4.20, both with the same data
	$(BIN)/python -P tests/benchmarks/compare_peers.py $(VENV)/lnt/bin/lnt

# LNT pins a SQLAlchemy of its own, so it gets an environment of its own.
$(VENV)/lnt/bin/lnt: | $(BIN)/python
	$(BIN)/python -m venv $(VENV)/lnt
	$(VENV)/lnt/bin/python -m pip install --quiet 'llvm-lnt==0.4.20'

# LABELLED is a folder with the labelled series that docs/reference/detection.md names.
.PHONY: compare-detectors
compare-detectors: $(DEV_STAMP) $(VENV)/asv/bin/asv $(VENV)/otava/bin/otava ## measure the change detector beside asv and Otava, for the page and the docs (LABELLED=)
	$(BIN)/python -P tests/benchmarks/detection.py --asv $(VENV)/asv/bin/python \
	  --otava $(VENV)/otava/bin/python --json web/detector_score.json \
	  $(if $(LABELLED),--labelled $(LABELLED))

# Otava pins numpy and scipy; asv has no need of ours.
$(VENV)/asv/bin/asv: | $(BIN)/python
	$(BIN)/python -m venv $(VENV)/asv
	$(VENV)/asv/bin/python -m pip install --quiet 'asv==0.6.6'

$(VENV)/otava/bin/otava: | $(BIN)/python
	$(BIN)/python -m venv $(VENV)/otava
	$(VENV)/otava/bin/python -m pip install --quiet 'apache-otava==0.8.0'

.PHONY: venv
venv: $(DEV_STAMP) ## only set up .venv, with everything that tests need

.PHONY: check-lint check-format check-types check-imports check-tests check-all-tests
check-lint: $(DEV_STAMP)
	$(BIN)/ruff check $(FORMATTED)

check-format: $(DEV_STAMP)
	$(BIN)/ruff format --check $(FORMATTED)

check-types: $(DEV_STAMP)
	$(BIN)/mypy

check-imports: $(DEV_STAMP)
	$(BIN)/lint-imports

# Most integration tests wait, for services and for processes: three run at a time, each file in one.
check-tests: $(DEV_STAMP)
	@chosen='not slow'; if ! $(HAS_GPU); then chosen="$$chosen and not gpu"; fi; \
	set -x; $(BIN)/pytest -q -n 3 --dist loadfile --durations=10 -m "$$chosen" $(PYTEST_ARGS)

check-all-tests: $(DEV_STAMP) $(AXE)
	$(PIP) install --quiet --editable ".[hugging-face]"
	@chosen=''; if ! $(HAS_GPU); then chosen='not gpu'; fi; \
	set -x; $(BIN)/pytest -q --durations=25 -m "$$chosen" $(PYTEST_ARGS)

# Looks for barriers in the pages, in the full tier only: no part of lossbench, and no build step.
$(AXE): | $(BIN)/python
	@if command -v npm >/dev/null; then \
	  npm install --prefix $(VENV)/axe --no-save --no-audit --no-fund --silent axe-core@4.14.1 \
	    || echo "== npm found no axe-core: the accessibility tests will be skipped"; \
	else echo "== npm is missing: the accessibility tests will be skipped"; fi

# ---- set-up -------------------------------------------------------------------------------------

# The first Python that is new enough and can make a virtual environment.
$(BIN)/python:
	@found=; reason='no Python >= 3.11 was found'; \
	for candidate in $(PYTHON) python3.13 python3.12 python3.11 python3; do \
	  "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  if "$$candidate" -c 'import ensurepip, venv' 2>/dev/null; then found=$$candidate; break; fi; \
	  reason="$$candidate cannot make virtual environments: apt-get install python3-venv"; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "lossbench: $$reason (or name one: make PYTHON=/path/to/python ...)" >&2; exit 1; \
	fi; \
	echo "== making $(VENV) with $$($$found --version)"; $$found -m venv $(VENV)

# A torch that is there already is left alone. The CPU build is asked for in one short try, since
# the plain package on Linux brings CUDA libraries of several GB.
.PHONY: torch
torch: $(BIN)/python
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip --upgrade; \
	if $(BIN)/python -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)'; then \
	  echo "== torch is there already"; \
	elif $(HAS_GPU); then \
	  echo "== an NVIDIA driver answers: torch with CUDA"; $(PIP) install torch; \
	else \
	  echo "== no NVIDIA driver: torch's CPU build"; \
	  $(PIP) install --timeout 10 --retries 0 --index-url $(CPU_INDEX) torch \
	    || { echo "== PyTorch's own index is out of reach: torch from pip's"; $(PIP) install torch; }; \
	fi

$(DEMO_STAMP): pyproject.toml | $(BIN)/python
	@$(MAKE) torch
	$(PIP) install --editable '.[all]'
	@touch $@

$(DEV_STAMP): pyproject.toml | $(BIN)/python
	@$(MAKE) torch
	$(PIP) install --editable '.[all,dev]'
	@touch $(DEMO_STAMP) $@
