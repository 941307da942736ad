# `make scaling` and `make test` set themselves up in .venv; `make help` lists all.
PYTHON ?= python3
ARGS ?=
STORE ?= results
REPORT ?= report
CLUSTER ?= cluster/gpu.yaml
STUDY ?= scaling
JOB ?=
BUCKET ?=
JOBS ?= logical
SMALL := --N 24 --max-steps 1200
TORCH ?= torch
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Names, which may come from a page or with a store. Recipes take them as "$$NAME": make expands nothing in them, and no shell runs them.
NAMES := STORE REPORT CLUSTER STUDY JOB BUCKET
$(foreach name,$(NAMES),$(eval override $(name) := $$(value $(name))))
export $(NAMES)

# Empty: Python keeps what it has compiled of the modules and the tests, whatever the shell says. It is a tenth of the work of `make check`.
export PYTHONDONTWRITEBYTECODE :=

ON_HEAD := cd ~/sweep && RAY_AUTH_MODE=token .venv/bin/ray job
JOB_NAME := shlex.quote(os.environ["JOB"] or os.environ["STUDY"])
# `ray job stop` kills a job that has not ended after so long, by default after 3 s. A study needs up to 15 s to end.
JOB_OF_STUDY := import json, os, shlex; \
	patience = shlex.quote(json.dumps({"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "30"}})); \
	module = shlex.quote("orchestrator." + os.environ["STUDY"]); \
	study = "cd ~/sweep && exec .venv/bin/python -m " + module + " --address auto " + os.environ["OF_STUDY"]; \
	print("$(ON_HEAD) submit --no-wait --runtime-env-json", patience, "--submission-id", $(JOB_NAME), "-- sh -c", shlex.quote(study))
LOGS_OF_JOB := import os, shlex; print("$(ON_HEAD) logs --follow", $(JOB_NAME))
BESIDE_ROWS := --exclude=/runs --exclude=/.lock --exclude=/.tmp --exclude=/.index
# What the cluster file says of a key, such as `region`.
of_file = $$(sed -n "s/^ *$(1): *[\"']\{0,1\}\([^\"'[:space:]]*\).*/\1/p" "$$CLUSTER" | head -n 1)
# Ends a recipe if one of these is a link: what it leads to is none of the store.
no_links = for path in $(1); do test ! -L "$$path" || { echo "$$path is a link: remove it" >&2; exit 2; }; done
# The store as it is now, as links in its `.tmp`, which a study beside it does not change. Rows come first, as each was written after
# its weights. rsync ends with 24 if files were removed meanwhile, such as checkpoints of runs that have ended.
take = $(call no_links,results/.tmp) && rm -rf results/.tmp/taken && mkdir -p results/.tmp/taken \
	&& { test ! -d results/runs || rsync --archive --link-dest=../.. results/runs results/.tmp/taken/ || test $$? = 24; } \
	&& { rsync --archive $(BESIDE_ROWS) --link-dest=../.. results/ results/.tmp/taken/ || test $$? = 24; }
# Ends a recipe if the cluster has no head, with what Ray says from its error on, in place of a traceback.
has_head = told=$$($(BIN)/ray get-head-ip "$$CLUSTER" 2>&1) || { \
	{ printf '%s\n' "$$told" | sed -n '/^[A-Za-z_.]*Error/,$$p' | grep . || printf '%s\n' "$$told" | tail -n 1; } >&2; \
	echo "no head of $$CLUSTER was found: name its file with CLUSTER=..., or start it with \`make up\`" >&2; exit 2; }
# How a copy of a store, a folder in its `.tmp`, becomes part of it: rows are added, after their weights, and of other files the newer
# ones stay. But weights and measures that are there stay, as the rows do that they belong to. A head that has no runs yet has no
# store to merge.
into_results = mkdir -p results && rsync --archive --ignore-existing $(BESIDE_ROWS) $(1)/ results/ \
	&& { test ! -d $(1)/runs || $(2)/python -m orchestrator.merge $(1) results; } \
	&& rsync --archive --update $(BESIDE_ROWS) --exclude=/weights --exclude=/measures $(1)/ results/ && rm -r $(1)

.PHONY: help setup scaling tune regularization encodings geometry tuning rotation generative paper report up submit logs fetch send down check test deep \
	bench bench-quick lint ruff mypy lint-imports unit clean

help: ## this list
	@grep -E '^[a-z -]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(VENV)/.installed ## install the pinned dependencies and the project into .venv

scaling: $(VENV)/.installed ## the scaling study; options: make scaling ARGS="--N 16,24 --decoder mlp"
	@$(BIN)/python -m orchestrator.scaling $(ARGS)

tune: $(VENV)/.installed ## tune any settings of a task; options: make tune ARGS="--search lr=1e-4..1e-2:log --decoder mlp"
	@$(BIN)/python -m orchestrator.tune $(ARGS)

regularization: $(VENV)/.installed ## the regularization study; options: make regularization ARGS="--N 8 --trials 16 --lr 0.01"
	@$(BIN)/python -m orchestrator.regularization $(ARGS)

encodings geometry tuning rotation: $(VENV)/.installed ## the studies of why decoders fail; options: make tuning ARGS="--N 16"
	@$(BIN)/python -m orchestrator.$@ $(ARGS)

generative: $(VENV)/.installed ## the studies of generators, also after one that is not answered; options: make generative ARGS="--tier smoke"
	@all=0; for study in objectives conditioning jepa signal; do \
		$(BIN)/python -m orchestrator.$$study $(ARGS) || { all=$$?; test $$all = 1 || break; }; done; exit $$all

paper: $(VENV)/.installed ## the six studies of the first paper at a small size, then the report; about 75 minutes on two cores; STORE=results REPORT=report
	@$(BIN)/python -m orchestrator.encodings $(SMALL) --by-depth 2,6 --store "$$STORE"
	@$(BIN)/python -m orchestrator.geometry $(SMALL) --depths 2,4,6 --store "$$STORE"
	@$(BIN)/python -m orchestrator.tuning $(SMALL) --store "$$STORE"
	@$(BIN)/python -m orchestrator.rotation --N 20 --epochs 50 --store "$$STORE"
	@$(BIN)/python -m orchestrator.regularization --seeds 3 --epochs 1000 --schedule constant \
		--lambda-entropy 0.1 --lambda-variance 0.01 --store "$$STORE"
	@$(BIN)/python -m orchestrator.scaling --N 16..40 --store "$$STORE"
	@$(BIN)/python -m analysis.report --store "$$STORE" --out "$$REPORT"

report: $(VENV)/.installed ## measure what is in the store, then draw and judge it; STORE=results REPORT=report
	@$(BIN)/python -m analysis.report --store "$$STORE" --out "$$REPORT" $(ARGS)

up: $(VENV)/.installed-cluster ## start a cluster; CLUSTER=cluster/gpu.yaml
	@{ test -f ~/.ray/auth_token || $(BIN)/ray get-auth-token --generate > /dev/null; } && chmod 600 ~/.ray/auth_token
	@region=$(call of_file,region); name=$(call of_file,cluster_name); \
		! grep -q 'type: aws' "$$CLUSTER" || $(BIN)/python cluster/aws.py setup $${region:+--region "$$region"} \
			$${name:+--cluster-name "$$name"} $${BUCKET:+--bucket "$$BUCKET"}
	@$(BIN)/ray up --yes --no-config-cache "$$CLUSTER"

submit: export OF_STUDY = $(value ARGS)
submit: $(VENV)/.installed-cluster ## hand it a study and leave; STUDY=scaling ARGS="--N 16..64 --gpus-per-run 1 --workers 4"
	@$(has_head)
	@job=$$($(BIN)/python -c '$(JOB_OF_STUDY)') && $(BIN)/ray exec "$$CLUSTER" "$$job"

logs: $(VENV)/.installed-cluster ## follow it; JOB=scaling
	@$(has_head)
	@logs=$$($(BIN)/python -c '$(LOGS_OF_JOB)') && $(BIN)/ray exec "$$CLUSTER" "$$logs"

fetch: $(VENV)/.installed-cluster ## add the results of the head to those here, at any time
	@$(has_head)
	@$(BIN)/ray exec "$$CLUSTER" 'cd ~/sweep && $(take)'
	@$(call no_links,results/.tmp)
	@rm -rf results/.tmp/fetched && mkdir -p results/.tmp/fetched
	@rsync --archive $(BESIDE_ROWS) --link-dest=../.. results/ results/.tmp/fetched/ || test $$? = 24
	@$(BIN)/ray rsync-down "$$CLUSTER" '~/sweep/results/.tmp/taken/' results/.tmp/fetched/
	@$(call into_results,results/.tmp/fetched,$(BIN))
	@$(BIN)/ray exec "$$CLUSTER" 'rm -rf ~/sweep/results/.tmp/taken'

send: $(VENV)/.installed-cluster ## add the results that are here to those of the head, at any time
	@test -d results || { echo "there is no folder results here to send" >&2; exit 2; }
	@$(has_head)
	@$(take)
	@$(BIN)/ray exec "$$CLUSTER" 'cd ~/sweep && $(call no_links,results/.tmp results/.tmp/sent) && mkdir -p results/.tmp/sent'
	@$(BIN)/ray rsync-up "$$CLUSTER" results/.tmp/taken/ '~/sweep/results/.tmp/sent/'
	@$(BIN)/ray exec "$$CLUSTER" 'cd ~/sweep && $(call into_results,results/.tmp/sent,.venv/bin)'
	@rm -rf results/.tmp/taken

down: $(VENV)/.installed-cluster ## delete the cluster, and what is on its machines
	@$(BIN)/ray down --yes "$$CLUSTER"

check: $(VENV)/.installed-test ## lint, types, imports and the quick tests; side by side
	@$(MAKE) --no-print-directory --jobs=4 ruff mypy lint-imports unit

test: lint ## lint, types, imports and the tests, as many at a time as there are cores, or JOBS=4
	$(BIN)/python -m pytest -m "not deep" -n $(JOBS) $(ARGS)

deep: $(VENV)/.installed-bench $(VENV)/.installed-test ## all but the quick tests, with all their cases, over an hour; a tier: make deep ARGS="-m cluster"
	THOROUGH=1 $(BIN)/python -m pytest -m "not unit" $(ARGS)

bench: $(VENV)/.installed-bench ## all benchmarks at full size, hours; some: make bench ARGS="step peers"
	@$(BIN)/python -m benchmarks $(ARGS)

bench-quick: $(VENV)/.installed-bench ## all benchmarks in their quick modes, ten minutes
	@$(BIN)/python -m benchmarks --quick $(ARGS)

lint: ruff mypy lint-imports ## lint, types and imports only

ruff: $(VENV)/.installed-test
	$(BIN)/ruff check .

mypy: $(VENV)/.installed-test
	$(BIN)/mypy

lint-imports: $(VENV)/.installed-test
	$(BIN)/lint-imports

unit: $(VENV)/.installed-test ## the quick tests, as many at a time as there are cores, or JOBS=4
	$(BIN)/python -m pytest -m unit -n $(JOBS) $(ARGS)

clean: ## remove the virtual environment and caches, never results
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .import_linter_cache build *.egg-info

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; name one with PYTHON=..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

# TORCH="torch --index-url https://download.pytorch.org/whl/cpu" takes the build without CUDA, which is gigabytes smaller.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "setting up $(VENV) (once, a few minutes)"
	$(PIP) $(TORCH)
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-cluster: $(VENV)/.installed
	$(PIP) --editable '.[cluster]'
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) --editable '.[test]'
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	$(PIP) --editable '.[bench]'
	@touch $@
