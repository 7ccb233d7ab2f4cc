# make serve, make test: everything from an empty checkout to the running server or the checked tree, in one command.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCK_VENV := build/lock

.PHONY: serve test figures lock
.DELETE_ON_ERROR:

serve: $(VENV)/requirements.stamp
	$(BIN)/parkway serve

test: $(VENV)/requirements-dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

figures: $(VENV)/requirements.stamp
	$(BIN)/python -m benchmarks.figures --readme

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Parkway needs Python 3.11 or newer, and $(PYTHON) is not: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; \
	  exit 1; }
	$(PYTHON) -m venv $(VENV)

# The stamps say that the packages of a lock file, and Parkway itself, are installed.
$(VENV)/%.stamp: %.lock pyproject.toml setup.py | $(VENV)/pyvenv.cfg
	$(BIN)/python -m pip install --disable-pip-version-check --requirement $<
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

# Takes the newest versions that pyproject.toml allows. Commit both files.
lock:
	rm -rf $(LOCK_VENV)
	$(PYTHON) -m venv $(LOCK_VENV)
	$(LOCK_VENV)/bin/python -m pip install --upgrade setuptools --editable .
	$(LOCK_VENV)/bin/python -m pip freeze --all --exclude parkway --exclude pip > requirements.lock
	$(LOCK_VENV)/bin/python -m pip install --constraint requirements.lock --editable '.[dev]'
	$(LOCK_VENV)/bin/python -m pip freeze --all --exclude parkway --exclude pip | sed 's/+cpu$$//' > requirements-dev.lock
