# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

# What a target makes is in .cache, .venv and .ansible of this checkout, and, where another checkout
# can use it, too, in CACHE.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/purelb-lab
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
# Runs tests, and once more what failed: tests/support/gate.
GATE := $(PYTHON) -m tests.support.gate
# What `make test` runs; `make test-all` overrides all of it.
SELECT := not thorough and not real_netbox
PROFILE := gate
# What only computes is not run again with the same files.
KNOWN := --only-computes
# How many seeds of the simulation.
GATE_SEEDS := 500
# Folders of tests that only compute.
MODELS := rule simulation
UNIT := --quiet -m '$(SELECT)' --hypothesis-profile=$(PROFILE)

export PATH := $(CURDIR)/.venv/bin:$(PATH)
export ANSIBLE_HOME := $(CURDIR)/.ansible
export ANSIBLE_REMOTE_TMP := $(CURDIR)/.ansible/tmp
export ANSIBLE_LOCALHOST_WARNING := false
export ANSIBLE_INVENTORY_UNPARSED_WARNING := false
# The import path; pytest and mypy have the same (pyproject.toml).
export PYTHONPATH := $(CURDIR):$(CURDIR)/agent:$(CURDIR)/lab:$(CURDIR)/plugins/module_utils

# The command after it sees, of this machine's programs and files, only what comes with Debian, the
# README and the packages of its targets: lab, tests or all (tests/support/machine).
SEES := tests
view = $(PYTHON) -m tests.support.machine.view $(1) -- $(MAKE)

.PHONY: help setup packages venv kubernetes containerd images test-packages bench-packages machine demo bench test built \
	checked explored on-labs newcomer demo-and-down integration-and-down summary checks explorations \
	test-all test-fresh test-lab lint sanity molecule coverage shells models seeds unit simulate mutants \
	integration netbox artefact lab-up lab-down clean

help: ## show this help
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: packages ## install packages and build programs; quick when all is there
	@$(MAKE) --jobs 5 kubernetes containerd images venv $(ARCHIVE)

demo: $(if $(DEMO_CLUSTER),venv,setup) ## bring up the lab, install, lose a pod, a node and a cable, audit
	@$(PYTHON) -m demo.demo --image $(IMAGE) --archive $(ARCHIVE)

bench: setup bench-packages ## measure what a change costs, what clients notice, what an idle agent costs
	@bench/bench

# Tests on labs wait a lot. Those that only compute have the processors meanwhile, as long as nothing
# else wants them: their time is simulated. What lint or a unit test finds ends all before that.
test: packages test-packages venv ## the gate: all checks, and each capability once on real parts
	@$(MAKE) lab-down && rm -rf .cache/gate
	@status=0; $(MAKE) --jobs 4 --keep-going --output-sync=line on-labs explored || status=$$?; \
	echo "== all tests"; $(MAKE) summary || status=$$?; exit $$status

# With the plus, make knows that it calls a make, which then has a share of the jobs.
built:
	+@$(call view,lab) kubernetes containerd $(ARCHIVE)

checked:
	+@$(call view,$(SEES)) checks

explored: checked
	+@chrt --idle 0 $(call view,$(SEES)) explorations

on-labs: checked built
	+@$(MAKE) newcomer
	+@$(call view,$(SEES)) integration-and-down

newcomer: packages venv ## the demo, where it sees nothing but what it installs
	+@$(GATE) command demo $(call view,lab) demo-and-down

demo-and-down:
	@trap '$(MAKE) lab-down' EXIT; $(MAKE) demo

integration-and-down:
	@trap '$(call each_lab,down || true) >/dev/null' EXIT; $(MAKE) integration

summary: ## what the last make test found, also if it was ended
	@$(GATE) summary

# No check runs at the same time as another one, but for lint and sanity.
checks: venv
	@$(MAKE) lint sanity
	@$(MAKE) coverage
	@$(MAKE) shells

explorations: venv
	@$(MAKE) models
	@$(MAKE) seeds

test-all: packages machine ## the gate, and all that takes longer
	@$(MAKE) test SEES=all SELECT="not real_netbox" PROFILE=random GATE_SEEDS=20000 KNOWN=
	@$(MAKE) test-fresh

test-fresh: packages venv ## the README's commands in a new Debian with what the README asks for
	@$(PYTHON) -m tests.support.machine.fresh

TESTS := tests/integration
test-lab: setup test-packages ## tests on a lab that stays up: make test-lab TESTS=tests/integration/faults
	@$(GATE) run lab --options="--verbose" $(TESTS)

lint: venv test-packages ## ruff, mypy, import-linter, codespell, ansible-lint, yamllint, documentation and changelog
	@echo "== ruff" && ruff check . && ruff format --check .
	@echo "== mypy" && MYPYPATH=.:agent:lab:plugins/module_utils mypy -p purelb -p purelb_agent -p labkit -p bench -p simulation
	@echo "== import-linter" && lint-imports
	@echo "== codespell" && codespell
	@echo "== ansible-lint" && ansible-lint --offline && \
		yamllint galaxy.yml meta roles playbooks changelogs tests extensions plugins demo
	@echo "== antsibull" && antsibull-changelog lint && tests/sanity/lint-docs

sanity: venv test-packages ## ansible-test sanity
	@echo "== ansible-test sanity" && tests/sanity/run

molecule: setup ## molecule scenarios alone, on a lab that is brought up if need be
	@$(PYTHON) -m pytest --verbose tests/integration/role/test_molecule.py

# Runs tests/unit/$(1) in parallel and measures the coverage of the code in $(2).
measure = rm -f .cache/coverage-$(1)* && \
	$(GATE) run $(1) --workers 2 --options="$(UNIT)" tests/unit/$(1) \
		--with "coverage run --data-file .cache/coverage-$(1) --source $(2)" && \
	coverage combine --quiet --data-file .cache/coverage-$(1)

coverage: venv test-packages ## unit tests of core and agent, and the branches that they reach
	@echo "== coverage of the core by its own tests"
	@$(call measure,core,$(CORE))
	@coverage report --data-file .cache/coverage-core --fail-under 100 --skip-covered --show-missing
	@echo "== coverage of the agent by its own tests"
	@$(call measure,agent,agent/purelb_agent)
	@coverage json --quiet --data-file .cache/coverage-agent -o .cache/coverage-agent.json
	@$(PYTHON) -m tests.support.branches .cache/coverage-agent.json

shells: venv test-packages ## unit tests of all but core, agent and models
	@echo "== unit tests of all but core, agent and models"
	@$(GATE) run shells --workers 2 tests/unit \
		--options="$(UNIT) $(addprefix --ignore=tests/unit/,core agent $(MODELS))"

models: venv test-packages ## unit tests on simulated time: the simulation, and the model of the rule
	@echo "== simulation and model"
	@$(GATE) run models $(KNOWN) --workers 2 $(addprefix tests/unit/,$(MODELS)) --options="$(UNIT) --timeout=600"

unit: venv test-packages ## unit tests alone
	@$(GATE) run unit --workers 2 --options="$(UNIT)" tests/unit

# A seed that fails does so each time, so it has no second try.
seeds: venv
	@echo "== seeds of the simulation"
	@$(GATE) command $(KNOWN) seeds make simulate FIRST=1 SEEDS=$(GATE_SEEDS)

# OPTIONS: make simulate OPTIONS=--help
simulate: venv ## random faults on simulated time: make simulate SEEDS=4000 FIRST=1
	@PYTHONHASHSEED=0 $(PYTHON) -m simulation \
		--first $(or $(FIRST),1) --seeds $(or $(SEEDS),1000) $(OPTIONS)

# MUTANTS: numbers, or parts of a bug or a path; OPTIONS: make mutants OPTIONS=--help
mutants: venv test-packages ## small bugs, one at a time: which tests find each, in an hour or more
	@$(PYTHON) -m tests.support.mutants $(OPTIONS) $(MUTANTS)

# With the plus, each line is printed at once, also by make test.
integration: setup test-packages ## the gate's tests on labs alone; brings the labs up if need be
	+@$(GATE) run integration --workers $(words $(LABS)) tests/integration \
		--options="--verbose -m '$(SELECT)'"

artefact: venv ## the collection for an index, with REPOSITORY=https://…, the URL of its repository
	@test -n "$(REPOSITORY)" || { echo "set REPOSITORY to the URL of the repository: an index wants it"; exit 2; }
	@rm -rf .cache/artefact && mkdir -p .cache/artefact/source
	@git archive HEAD | tar --extract --directory .cache/artefact/source
	@printf '%s: $(REPOSITORY)%s\n' repository "" homepage "" documentation "#documentation" issues /issues \
		>> .cache/artefact/source/galaxy.yml
	@$(BIN)/ansible-galaxy collection build .cache/artefact/source --output-path .cache/artefact

netbox: setup ## tests against a real NetBox, which is built first (1 GB, some minutes)
	@$(PYTHON) -m tests.support.netbox.server build
	@$(PYTHON) -m pytest -m real_netbox tests/unit/ipam/test_netbox.py

lab-up: setup ## bring up the lab
	@lab/lab up --nodes 3

lab-down: ## end the labs and everything of them
	@$(call each_lab,down)

clean: lab-down ## remove what was installed and built in this checkout
	rm -rf .cache .venv .ansible .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

venv: $(TREE) | packages
	@lab/lab setup python

packages:
	@lab/lab setup packages

test-packages: packages
	@lab/lab setup tests

bench-packages: packages
	@lab/lab setup bench

kubernetes containerd images machine: | packages
	@lab/lab setup $@

# The collection under its full name, for every Ansible tool.
$(TREE):
	@mkdir -p $(dir $@)
	@ln -sfn $(CURDIR) $@

$(ARCHIVE): $(IMAGE_SOURCES) | images
	@lab/lab image build --tag $(IMAGE) --file agent/Dockerfile --context . --output $@ \
		--build-arg BASE_IMAGE=localhost/lab/python:1 \
		--build-arg BUILD_IMAGE=localhost/lab/python-build:1
