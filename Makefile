# Everything a developer or CI runs has a target here; each sets up `.venv` by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROTOS := $(shell cd proto && find . -name '*.proto' | sed 's,^\./,,' | sort)

.PHONY: help
help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

$(VENV)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Windrow needs Python 3.11 or newer; '$(PYTHON)' is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "Setting up $(VENV) (once) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

.PHONY: setup
setup: $(VENV)/.ready ## Set up .venv

.PHONY: proto
proto: setup ## Generate the gRPC stubs from proto/
	$(BIN)/python -m grpc_tools.protoc -Iproto --python_out=client --grpc_python_out=client \
	  --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc \
	  --mypy_out=quiet:client --mypy_grpc_out=quiet:client $(PROTOS)

.PHONY: lint
lint: setup ## Lint, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: format
format: setup ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
