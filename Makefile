# Two commands do everything on a fresh machine (Python >= 3.11 and make):
#   make chat   sets up, and shows the main job without an API key
#   make test   sets up, and runs every check and test
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DISTS  := $(patsubst %/pyproject.toml,%,$(sort $(wildcard plugins/*/pyproject.toml))) conformance
# Twice as many as there are cores here: some tests wait for something.
JOBS   ?= 4
MINUTES ?= 5

# Tests start hundreds of workers. Where this is set, as in many container images, each would compile its SDK anew, which takes
# several times as long as all that it does afterwards.
unexport PYTHONDONTWRITEBYTECODE

#   make test-thorough  the tests, and those besides that take long and mostly repeat what the others look at
#   make breakages  breaks the source in each listed way, and sees that the tests notice
#   make test-oldest  tests each adapter with the oldest SDK that it declares, and each adapter alone
#   make crash      kills an agent at every boundary, and prints a table; make soak kills at random
.PHONY: chat test tests test-thorough test-oldest bench breakages crash soak lint format types lock clean setup-run setup-test

chat: $(VENV)/.run
	$(BIN)/python examples/tour.py

# Types are checked beside the tests, which need all cores only once they are collected.
test: lint
	$(MAKE) --no-print-directory --jobs=2 types tests

tests: $(VENV)/.test
	$(BIN)/python -m pytest -n $(JOBS) --dist loadscope --no-loadscope-reorder

test-thorough: $(VENV)/.test
	$(BIN)/python -m pytest -n $(JOBS) --dist loadscope --no-loadscope-reorder --thorough

# Kill an agent at every boundary, everywhere, and write what came out into the README's table (half an hour or more).
crash: $(VENV)/.test
	$(BIN)/python -m flyteplugins.agents.conformance.crash matrix openai --model gpt-4.1 --preload agents --table README.md

# Kill agents twice, at random places, for MINUTES; the seed is printed, and SEED makes the same choices again.
soak: $(VENV)/.test
	$(BIN)/python -m flyteplugins.agents.conformance.crash soak openai --model gpt-4.1 --preload agents --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

# What things cost beside what they are compared with; run it on a machine that does nothing else.
bench: $(VENV)/.test
	$(BIN)/python -m flyteplugins.agents.conformance.benchmarks plugins/openai/tests/test_conformance.py

# Each adapter with the oldest of what it may be installed with, in an environment of its own, and each adapter alone (half an hour).
test-oldest: $(VENV)/.test
	$(BIN)/python tests/oldest.py $(ADAPTER) $(if $(SUBSET),--subset $(SUBSET))

setup-run: $(VENV)/.run
setup-test: $(VENV)/.test

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; $(PYTHON) is older. Say which one: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^uv==' requirements/test.txt)"

$(VENV)/.run: $(BIN)/uv requirements/run.txt $(DISTS:%=%/pyproject.toml)
	$(BIN)/uv pip install --quiet --python $(BIN)/python -r requirements/run.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps $(DISTS:%=-e ./%)
	@touch $@

$(VENV)/.test: $(VENV)/.run requirements/test.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python -r requirements/test.txt
	@touch $@ $(VENV)/.run

lint: $(VENV)/.test
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

format: $(VENV)/.test
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

types: $(VENV)/.test
	$(BIN)/mypy

breakages: $(VENV)/.test
	ONLY="$(ONLY)" $(BIN)/python tests/breakages.py

lock: $(BIN)/uv
	$(BIN)/uv pip compile --universal -p 3.11 --no-emit-index-url --no-header -q requirements/test.in -o requirements/test.txt
	$(BIN)/uv pip compile --universal -p 3.11 --no-emit-index-url --no-header -q -c requirements/test.txt requirements/run.in -o requirements/run.txt

clean:
	rm -rf $(VENV) .venv-oldest .pytest_cache .mypy_cache .ruff_cache .hypothesis
