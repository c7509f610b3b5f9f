# One command sets up and runs the main job (`make serve`), one sets up and runs all tests (`make test`).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help install serve test lint types contracts unit test-vllm vllm-parser vllm-cpu accuracy bench load reference portal lock clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

install: $(INSTALLED) ## make .venv with the locked dependencies and `setpoint` in it

$(INSTALLED): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@echo "compiling the scheduler simulation once"
	@$(BIN)/setpoint recommend -f examples/requests/llama-3.1-8b-chat-h100.json --json > /dev/null
	@touch $@

serve: install ## start the API, the embedded store and one local worker
	$(BIN)/setpoint serve

test: install lint types contracts vllm-parser vllm-cpu unit ## set up everything the tests need and run all of it

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy

contracts: install
	$(BIN)/lint-imports

unit: install
	$(BIN)/pytest -n $(WORKERS) --dist loadfile

test-vllm: install vllm-parser vllm-cpu ## only the part that asks real vLLM
	$(BIN)/pytest -m vllm -n $(WORKERS) --dist loadfile

vllm-parser: install ## make .venv-vllm with the newest vLLM's argument parser, which needs no GPU
	bash tests/vllm/setup_parser.sh

vllm-cpu: install ## make .venv-vllm-cpu with real vLLM on the CPU, for proofs without a GPU
	bash deploy/vllm-cpu/setup.sh

accuracy: install ## print the accuracy tables on the project's own data, and write docs/accuracy.md
	$(BIN)/python benchmarks/memory_accuracy.py --write
	$(BIN)/python benchmarks/performance_accuracy.py --write
	$(BIN)/python docs/make_accuracy.py

bench: install ## print the speed figures, as ratios within one run
	$(BIN)/python benchmarks/speed.py

load: install ## print what two processes of the service take on this machine; needs wrk
	$(BIN)/python benchmarks/load.py

reference: install ## write docs/reference.md anew from the code
	$(BIN)/python docs/make_reference.py

portal: install ## build the page anew: its types from the API's document, then its files
	cd service/portal/web && npm ci --no-audit --no-fund
	$(BIN)/python docs/make_openapi.py | (cd service/portal/web && npm run --silent types)
	cd service/portal/web && npm run --silent check && npm run --silent build

COMPILE := $(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-annotate --no-header --quiet

lock: install ## write the locks anew, with hashes and without index addresses
	$(COMPILE) --all-extras -o requirements.lock
	$(COMPILE) --extra service --extra worker --extra telemetry \
		--constraint requirements.lock -o requirements-runtime.lock

clean: ## remove the environments and caches
	rm -rf $(VENV) .venv-vllm .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
