# Two commands for everyone: make demo, make test. Both can be interrupted and repeated, and write to .venv and runs/ only.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo docs docs-serve test test-rest test-all test-optimized torture newcomer lint types audit clean

VENV := .venv
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := $(VENV)/bin
SOURCES := jaxnlp data train configs benchmarks tests docs

help:
	@echo "make demo    install, train a character GPT for about a minute, print a sample"
	@echo "make docs    build the documentation in site/, with warnings as errors; make docs-serve shows it while it is edited"
	@echo "make test    install what the tests need, and run every property and every family: minutes"
	@echo "make test-all          all tests: make test, test-rest and test-optimized"
	@echo "make test-rest         the tests that make test leaves out: sweeps of parameters, repeated kills"
	@echo "make test-optimized    run some tests again with XLA's optimisations, as users compile"
	@echo "make torture           200 rounds of random faults in small runs, and the table of docs/reliability.md: half an hour"
	@echo "make newcomer          build the wheel, and run the README's short commands with it in a new environment"
	@echo "make lint    ruff and codespell: style, formatting and spelling"
	@echo "make types   mypy"
	@echo "make audit   known vulnerabilities of the installed packages, by public lists"
	@echo "make clean   remove .venv and caches (runs/ stays)"

demo: $(VENV)/.installed
	$(BIN)/jaxnlp train gpt_python_docs --workdir runs/demo
	@echo
	@echo "A sample (jaxnlp generate runs/demo --prompt 'The ' draws another with --seed N):"
	@echo
	@$(BIN)/jaxnlp generate runs/demo --prompt "The " --max-new-tokens 400 --temperature 0.7
	@echo
	@echo "The run's folder  $(CURDIR)/runs/demo"
	@echo "Its report        $(CURDIR)/runs/demo/report.html"
	@echo "Its plots         $(CURDIR)/runs/demo/plots"

# Material's notice about its successor is no warning of the build.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs

docs: $(VENV)/.installed-docs
	$(MKDOCS) build --quiet
	@echo "The documentation  $(CURDIR)/site/index.html (make docs-serve shows it with its search)"

docs-serve: $(VENV)/.installed-docs
	$(MKDOCS) serve

# Files keep their order, the longest first: xdist would start with those of many tests.
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder --quiet

test: $(VENV)/.installed-dev
	$(PYTEST) -m "not thorough"

test-rest: $(VENV)/.installed-dev
	$(PYTEST) -m thorough

test-all: test test-rest test-optimized

# Tests switch XLA's optimisations off, to compile quickly; users have them on. Some tests are run again with them.
test-optimized: $(VENV)/.installed-dev
	JAXNLP_TEST_OPTIMIZED=1 $(BIN)/python -m pytest --numprocesses 2 --quiet -m optimized tests/jaxnlp/ops

torture: $(VENV)/.installed-dev
	$(BIN)/python -m tests.torture --record

newcomer: $(VENV)/.installed-dev
	tests/newcomer.sh

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/codespell $(SOURCES) README.md CONTRIBUTING.md SECURITY.md Makefile pyproject.toml

types: $(VENV)/.installed-dev
	$(BIN)/mypy

audit: $(VENV)/.installed-dev
	$(BIN)/pip-audit --skip-editable --progress-spinner off

# A stamp appears only when everything is installed: an interrupted installation is begun again.
$(VENV)/.installed: requirements.txt pyproject.toml | $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-docs: requirements.txt pyproject.toml | $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-dev: requirements.txt pyproject.toml | $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-docs

$(VENV)/.ready:
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer found; install one, or give make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is $$($(PYTHON) --version), but Python 3.11 or newer is needed" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) || \
		{ echo "error: $(PYTHON) -m venv failed; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache build dist site *.egg-info
