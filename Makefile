# Everything that a developer or CI runs has a target here. Each target sets up `.venv` by itself.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python; do \
  $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$python; exit; }; done; echo python3)
VENV := .venv
BIN := $(VENV)/bin
PROTOS := $(shell cd proto && find . -name '*.proto' | sed 's,^\./,,' | sort)
# Arguments for pytest, as in: make test PYTEST="tests/worker -x"
PYTEST ?=
# The tests that compare pages with the code; those that need containers are left out.
DOCUMENTATION_TESTS := $(filter-out tests/containers/%,$(wildcard tests/*/test_*_documentation.py)) tests/reference tests/core/test_core_transitions.py
# The number that decides the order of the tests, drawn anew each time. To repeat an order: make test SEED=<the printed number>
SEED ?= $(shell od -An -N3 -tu4 /dev/urandom | tr -d ' ')
# How many test processes run at the same time. Most tests wait for processes that they started.
JOBS ?= 3

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

$(VENV)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Windrow needs Python 3.11 or newer; '$(PYTHON)' is older or missing. Try: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "Setting up $(VENV) (once) ..."
	@# uv takes seconds where pip takes minutes, but does not read pip.conf: with an index of its own, pip does it.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@UV_LINK_MODE=copy $(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[dev]' 2>$@.failed \
	  || $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' || { cat $@.failed >&2; exit 1; }
	@rm -f $@.failed
	@# The paths are relative, so that they hold only ASCII wherever this folder is: with others, Python 3.11 does not start with LC_ALL=C.
	@for site in $(VENV)/lib/python3*/site-packages; do printf '../../../../%s\n' client master agent worker >$$site/_windrow.pth; done
	@touch $@

# Bytecode is written here: uv writes none, nor does Python if PYTHONDONTWRITEBYTECODE is set. Without it, each process compiles
# all that it imports, and a command that asks takes twice as long.
unexport PYTHONDONTWRITEBYTECODE
# What Windrow's own processes import, and most scripts.
COMPILED := grpc google typing_extensions.py yaml structlog psutil typer click rich numpy pandas pyarrow
.PHONY: setup
setup: $(VENV)/.ready ## Set up .venv
	@$(BIN)/python -m compileall -q -j 2 client master agent worker $(foreach part,$(COMPILED),$(wildcard $(VENV)/lib/python3*/site-packages/$(part))) \
	  || echo "Windrow starts slowly: no bytecode can be written beside its modules" >&2

.PHONY: demo
demo: setup ## Run an example end to end and show the first lines of its output
	@$(BIN)/python examples/digits/train.py
	$(BIN)/windrow run examples/digits/job.yml --environments own
	@echo && echo "examples/digits/output/digits.csv begins (image, digit, confidence):"
	@head -n 5 examples/digits/output/digits.csv

.PHONY: demo-cluster
demo-cluster: setup ## Run a cluster in containers, kill its master in the middle of a job, and check the output
	@$(BIN)/python examples/cluster/demo.py

# Runs targets at the same time. The output of each stays together.
side-by-side = $(MAKE) --no-print-directory --jobs --output-sync=target $(1)

.PHONY: demo-fleet
demo-fleet: setup ## Run a cluster without agents, whose fleet gets 4 for a job, one of them killed, and gives them back
	@$(BIN)/python examples/cluster/fleet_demo.py

.PHONY: check
check: setup ## Lint, types, import rules, stubs, documentation: seconds where little has changed, else a minute
	@$(call side-by-side,types style layers check-stubs check-docs)

# Without this, each test process rewrites the assertions of all tests for itself.
.PHONY: rewritten-tests
rewritten-tests: setup
	@$(BIN)/python -m pytest --collect-only -q >/dev/null 2>&1 || true

.PHONY: test
test: setup ## All of `check`, and all tests
	@$(call side-by-side,types style layers check-stubs $(if $(PYTEST),,rewritten-tests))
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --randomly-seed=$(SEED) $(PYTEST)

.PHONY: bench
bench: setup ## Measure everything beside multiprocessing.Pool and concurrent.futures
	$(BIN)/python -m benchmarks $(BENCH)

.PHONY: damage-trials
damage-trials: setup ## Damage the state of interrupted runs at random, and check how they go on (TRIALS=2000 SEED=n)
	$(BIN)/python tests/damage/damage_trials.py --trials $(or $(TRIALS),2000) $(if $(SEED),--seed $(SEED))

.PHONY: fuzz
fuzz: setup ## Send a master whatever nobody should, and check what it makes of it (MESSAGES=100000)
	PYTHONPATH=tests $(BIN)/python tests/hostile/fuzzing.py --messages $(or $(MESSAGES),100000)

.PHONY: power-trials
power-trials: setup ## Cut the power of a machine at any write of a master and an agent, and start both again (TRIALS=500 SEED=n)
	$(BIN)/python tests/integration/power_trials.py --trials $(or $(TRIALS),500) $(if $(SEED),--seed $(SEED))

# $(call generate-stubs,FOLDER)
generate-stubs = $(BIN)/python -m grpc_tools.protoc -Iproto --python_out=$(1) --grpc_python_out=$(1) \
  --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc \
  --mypy_out=quiet:$(1) --mypy_grpc_out=quiet:$(1) $(PROTOS)

.PHONY: proto
proto: setup ## Generate the gRPC stubs from proto/
	@$(call generate-stubs,client)

.PHONY: docs
docs: setup ## Write the pages and stubs that are made from the code
	@$(BIN)/python docs/generate

.PHONY: docs-site
docs-site: setup ## Build the documentation site in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

.PHONY: docs-serve
docs-serve: setup ## Show the documentation site while you write
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

.PHONY: lock
lock: setup ## Lock what the images install (UPGRADE=all, or names: take the newest of these)
	@$(BIN)/python docker/supply lock $(UPGRADE)

.PHONY: audit
audit: setup ## Fail where a locked package has a known vulnerability (DATABASE=all.zip: ask no network)
	@$(BIN)/python docker/supply audit $(DATABASE)

.PHONY: licences
licences: setup ## List the licences of what is locked; fail where one is not allowed
	@$(BIN)/python docker/supply licences

.PHONY: check-stubs
check-stubs: setup ## Fail when the committed stubs are not what proto/ generates
	@rm -rf build/stubs && mkdir -p build/stubs
	@$(call generate-stubs,build/stubs)
	@for package in v1 keda; do \
	  diff -r -x __pycache__ -x __init__.py build/stubs/windrow/rpc/$$package client/windrow/rpc/$$package || \
	  { echo "client/windrow/rpc/$$package is not what proto/ generates: run 'make proto' and commit the result" >&2; exit 1; }; \
	done

.PHONY: check-docs
check-docs: setup ## Fail where a page names what is not there, or is not what the code makes of it
	@$(BIN)/python -m pytest $(DOCUMENTATION_TESTS)

.PHONY: lint
lint: style types layers ## Lint, types, import rules

.PHONY: style
style: setup
	@$(BIN)/python -m ruff check --quiet .
	@$(BIN)/python -m ruff format --quiet --check . || { echo "Run 'make format' and commit the result" >&2; exit 1; }

.PHONY: types
types: setup
	@$(BIN)/python -m mypy

.PHONY: layers
layers: setup
	@$(BIN)/lint-imports --no-logo

.PHONY: format
format: setup ## Format the code
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .
