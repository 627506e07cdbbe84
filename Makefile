# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

# Everything that a target makes stays in .cache, .venv and .ansible of this checkout.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON := .venv/bin/python
BIN := .venv/bin
VERSION := $(shell sed -n 's/^version: //p' galaxy.yml)
IMAGE := localhost/purelb/purelb:$(VERSION)
ARCHIVE := .cache/image.tar
TREE := .ansible/collections/ansible_collections/purelb/purelb
CORE := plugins/module_utils/purelb/core
IMAGE_SOURCES := agent/Dockerfile .dockerignore agent/requirements.txt $(wildcard agent/bin/*) \
	$(shell find agent/purelb_agent $(CORE) -name "*.py")

# The labs of the tests, one per worker (lab/README.md); other targets use the first one.
LABS := $(shell first=$${LAB_NUMBER:-0}; echo $$first $$((first + 1)))
each_lab = for number in $(LABS); do LAB_NUMBER=$$number lab/lab $(1); done
SPREAD := --numprocesses $(words $(LABS)) --no-loadscope-reorder --max-worker-restart 0

export PATH := $(CURDIR)/.venv/bin:$(PATH)
export ANSIBLE_HOME := $(CURDIR)/.ansible
export ANSIBLE_REMOTE_TMP := $(CURDIR)/.ansible/tmp
export ANSIBLE_LOCALHOST_WARNING := false
export ANSIBLE_INVENTORY_UNPARSED_WARNING := false
# The import path; pytest and mypy have the same (pyproject.toml).
export PYTHONPATH := $(CURDIR):$(CURDIR)/agent:$(CURDIR)/lab:$(CURDIR)/plugins/module_utils

.PHONY: help setup packages demo bench test lint sanity molecule coverage shells unit integration netbox lab-up lab-down clean

help: ## show this help
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: packages .venv/done $(TREE) ## install packages and build programs; quick when all is there

demo: setup ## bring up the lab, install, lose a pod and a node, audit
	@if [ -z "$${KUBECONFIG:-}" ]; then $(MAKE) $(ARCHIVE); fi
	@$(PYTHON) -m demo.demo --image $${PURELB_IMAGE:-$(IMAGE)} --archive $(ARCHIVE)

bench: setup $(ARCHIVE) ## measure what a change costs, what clients notice, what an idle agent costs
	@bench/bench

# Checks without a lab run in parallel. pytest runs last, so its summary ends the output.
test: setup ## run all checks and all tests
	@$(MAKE) --jobs 2 --output-sync=line lint sanity coverage shells $(ARCHIVE)
	@trap '$(call each_lab,down || true) >/dev/null' EXIT; \
	$(MAKE) lab-down; $(MAKE) integration

lint: setup ## ruff, mypy, import-linter, ansible-lint, yamllint, documentation and changelog
	@echo "== ruff" && ruff check . && ruff format --check .
	@echo "== mypy" && MYPYPATH=.:agent:lab:plugins/module_utils mypy -p purelb -p purelb_agent -p labkit -p bench
	@echo "== import-linter" && lint-imports
	@echo "== ansible-lint" && ansible-lint --offline && \
		yamllint galaxy.yml meta roles playbooks changelogs tests extensions plugins demo
	@echo "== antsibull" && antsibull-changelog lint && \
		antsibull-docs lint-collection-docs --plugin-docs --validate-collection-refs=self .

sanity: setup ## ansible-test sanity
	@echo "== ansible-test sanity" && tests/sanity/run

molecule: setup $(ARCHIVE) ## molecule scenarios alone, on a lab that is brought up if need be
	@lab/lab up --nodes 3
	@$(PYTHON) -m pytest --verbose tests/integration/role/test_molecule.py

# Runs tests/unit/$(1) in parallel and measures the coverage of the code in $(2).
UNIT := --numprocesses 2 --dist loadfile
measure = rm -f .cache/coverage-$(1)* && \
	coverage run --data-file .cache/coverage-$(1) --source $(2) -m pytest $(UNIT) --quiet tests/unit/$(1) && \
	coverage combine --quiet --data-file .cache/coverage-$(1)

coverage: setup ## unit tests of core and agent, and the branches that they reach
	@echo "== coverage of the core by its own tests"
	@$(call measure,core,$(CORE))
	@coverage report --data-file .cache/coverage-core --fail-under 100 --skip-covered --show-missing
	@echo "== coverage of the agent by its own tests"
	@$(call measure,agent,agent/purelb_agent)
	@coverage json --quiet --data-file .cache/coverage-agent -o .cache/coverage-agent.json
	@$(PYTHON) -m tests.support.branches .cache/coverage-agent.json

shells: setup ## unit tests of all but core and agent
	@$(PYTHON) -m pytest $(UNIT) tests/unit --ignore tests/unit/core --ignore tests/unit/agent

unit: setup ## unit tests alone
	@$(PYTHON) -m pytest $(UNIT) tests/unit

integration: setup $(ARCHIVE) ## integration tests alone, on labs that are brought up if need be
	@$(call each_lab,up --nodes 3)
	@$(PYTHON) -m pytest $(SPREAD) --verbose tests/integration

netbox: setup ## tests against a real NetBox, which is built first (1 GB, some minutes)
	@$(PYTHON) -m tests.support.netbox.server build
	@$(PYTHON) -m pytest -m real_netbox tests/integration/ipam/test_netbox.py

lab-up: setup ## bring up the lab
	@lab/lab up --nodes 3

lab-down: ## end the labs and everything of them
	@$(call each_lab,down)

clean: lab-down ## remove what was installed and built in this checkout
	rm -rf .cache .venv .ansible .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# pip does not fetch a file again whose download breaks off.
.venv/done: requirements-dev.txt | packages
	@python3 -c 'import ensurepip' 2>/dev/null || apt-get install --quiet --yes python3-venv
	@python3 -m venv .venv
	@echo "installing Python packages into .venv (about a minute without a cache)"
	@for pause in 5 20 last; do \
		$(PYTHON) -m pip install --quiet --disable-pip-version-check \
			--requirement requirements-dev.txt && break || \
		{ [ $$pause != last ] && sleep $$pause; }; done
	@touch $@

packages:
	@lab/lab setup

# The collection under its full name, for every Ansible tool.
$(TREE):
	@mkdir -p $(dir $@)
	@ln -sfn $(CURDIR) $@

$(ARCHIVE): $(IMAGE_SOURCES) | setup
	@lab/lab image build --tag $(IMAGE) --file agent/Dockerfile --context . --output $@ \
		--build-arg BASE_IMAGE=localhost/lab/python:1 \
		--build-arg BUILD_IMAGE=localhost/lab/python-build:1
