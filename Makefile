# make serve, make test: everything from an empty checkout to the running server or the checked tree, in one command.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCK_VENV := build/lock
CLIENTS_VENV := build/clients
NODE_CLIENTS := tests/clients/node

.PHONY: serve test test-clients types imports kernels figures lock
.DELETE_ON_ERROR:

serve: $(VENV)/requirements.stamp
	$(BIN)/parkway serve

test: $(VENV)/requirements-dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(MAKE) --no-print-directory --jobs=2 kernels types imports
	$(BIN)/python -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder

# Clients in use and checkers of the API against a real server, in the versions that are locked. `make test` runs those
# whose packages it has. The rest is half a gigabyte with plugins for pytest, so it has an environment of its own; the
# clients for Node need node and npm.
test-clients: $(VENV)/requirements-dev.stamp $(CLIENTS_VENV)/requirements-clients.stamp $(NODE_CLIENTS)/node_modules/.package-lock.json
	CLIENTS_PYTHON=$(abspath $(CLIENTS_VENV))/bin/python $(BIN)/python -m pytest tests/clients

types imports kernels: $(VENV)/requirements-dev.stamp

types:
	$(BIN)/mypy

imports:
	$(BIN)/lint-imports

# The kernels of the CPU, which every process of the tests would compile otherwise.
kernels:
	$(BIN)/python -c 'from parkway.backends.cpu.library import library; library()'

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

$(CLIENTS_VENV)/requirements-clients.stamp: requirements-clients.lock
	$(PYTHON) -m venv --clear $(CLIENTS_VENV)
	$(CLIENTS_VENV)/bin/python -m pip install --disable-pip-version-check --requirement $<
	touch $@

$(NODE_CLIENTS)/node_modules/.package-lock.json: $(NODE_CLIENTS)/package-lock.json
	npm ci --prefix $(NODE_CLIENTS) --no-audit --no-fund
	touch $@

# The packages of pyproject.toml's extra `clients`, without Parkway's own.
CLIENTS := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["clients"], sep="\n")

# Takes the newest versions that pyproject.toml and package.json allow. Commit all four files.
lock:
	rm -rf $(LOCK_VENV)
	$(PYTHON) -m venv $(LOCK_VENV)
	$(LOCK_VENV)/bin/python -m pip install --upgrade setuptools --editable .
	$(LOCK_VENV)/bin/python -m pip freeze --all --exclude parkway --exclude pip > requirements.lock
	$(LOCK_VENV)/bin/python -m pip install --constraint requirements.lock --editable '.[dev]'
	$(LOCK_VENV)/bin/python -m pip freeze --all --exclude parkway --exclude pip | sed 's/+cpu$$//' > requirements-dev.lock
	$(PYTHON) -m venv --clear $(LOCK_VENV)
	$(PYTHON) -c '$(CLIENTS)' > $(LOCK_VENV)/clients.txt
	$(LOCK_VENV)/bin/python -m pip install --requirement $(LOCK_VENV)/clients.txt
	$(LOCK_VENV)/bin/python -m pip freeze > requirements-clients.lock
	npm update --prefix $(NODE_CLIENTS) --no-audit --no-fund
