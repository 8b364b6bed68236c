# Needs make, Python 3.11 to 3.13 and pip; everything else is put into .venv by .ci/setup.
.DEFAULT_GOAL := help
.PHONY: help setup reproduce test watch test-all test-once test-fetched test-seeds test-blas fuzz faults smoke lint format docs bench peers serve lock wheel sbom clean develop

# PYTHON=/path/to/python3.13 picks the interpreter of a new .venv; empty: the first that fits.
PYTHON ?=
# PROFILE=default | paper | grid | full: how much `make reproduce` runs. Paper takes hours, and days for
# the texts; grid and full are of adult-tradeoff alone. Studies without the profile are left out.
PROFILE ?= default
# PYTEST=... and BENCH=...: further arguments, e.g. make test PYTEST=tests/models
PYTEST ?=
# FUZZ=100000: how many inputs `make fuzz` tries.
FUZZ ?= 100000
BENCH ?=

# Spinning OpenMP threads cost XGBoost up to 25 times its time on shared cores.
export OMP_WAIT_POLICY := PASSIVE
export PYTHON
RUN := .venv/bin/python
# Environments of peers, each by its .in and .lock in benchmarks/peer: of the scoreboard, and of audits.
PEERS := fairlearn fairgbm aedt
# Tests of a file share servers and tables: a file goes to one process, the longest files first.
# tests/conftest.py says how many there are.
SPREAD := -n auto --dist loadfile --no-loadscope-reorder
# What sets may be iterated over for: digests, keys, plans, searches. The others draw a seed each time.
SEEDED := tests/runtime/test_store.py tests/prepare/splitting tests/models/fit/test_key.py tests/study/search \
	$(wildcard tests/study/test_*.py) tests/report/test_summary.py
# Kinds of OpenBLAS's kernels, with what a processor needs for them by its name in /proc/cpuinfo.
KERNELS := Haswell:avx2 SkylakeX:avx512vl Zen:avx2 Prescott:pni
UV_COMPILE := uv pip compile -q --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header --no-annotate --no-strip-extras

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

setup:  ## install the locked dependencies and the project into .venv
	@.ci/setup requirements.lock

develop:  ## setup, with what tests and linting need
	@.ci/setup requirements-dev.lock

reproduce: setup  ## run the studies that reproduce papers (PROFILE=default|paper|grid|full)
	@$(RUN) -m flows reproduce --profile $(PROFILE)

test: develop  ## run the tests (PYTEST=... for pytest's arguments)
	@$(RUN) -m pytest $(SPREAD) $(PYTEST)

watch: develop  ## run tests again whenever a file is saved (PYTEST="tests/contracts/test_methods.py -k NAME")
	@marks=$$(mktemp -d); trap 'rm -rf $$marks' EXIT; trap exit INT TERM; \
	touch -t 200001010000 $$marks/seen; \
	while sleep 0.5; do \
		touch $$marks/now; \
		if find conf fairfrontier papers tests -newer $$marks/seen \( -name '*.py' -o -name '*.yaml' \) | grep -q .; then \
			mv $$marks/now $$marks/seen; $(RUN) -m pytest $(SPREAD) $(PYTEST); \
		fi; \
	done

test-all: develop  ## run the tests with the slow ones
	@$(RUN) -m pytest $(SPREAD) -m "not gpu" $(PYTEST)

# Three at a time: one of them waits for servers.
test-once: develop  ## run the tests of whole processes, files and pictures
	@$(RUN) -m pytest $(SPREAD) -n 3 -m "once and not slow and not gpu" $(PYTEST)

test-fetched: develop  ## fetch the tables and the encoder that are not committed, and test them
	@$(RUN) -m tests.prepare.fetched
	@$(RUN) -m pytest -n 0 -m fetched $(PYTEST)

test-seeds: develop  ## run what keys, orders and draws are made of under three seeds of Python's hashes
	@for seed in 0 1 2; do \
		echo "PYTHONHASHSEED=$$seed"; \
		PYTHONHASHSEED=$$seed $(RUN) -m pytest $(SPREAD) $(SEEDED) $(PYTEST) || exit 1; \
	done
	@$(RUN) -m pytest -m slow tests/test_hash_seed.py

fuzz: develop  ## edit valid files at random, FUZZ=100000 times: every edit gets a result or a sentence
	@$(RUN) -m tests.fuzz --inputs $(FUZZ)

faults: develop  ## kill commands 200 times, fill disks, stop workers; figures into docs/reliability.md
	@$(RUN) -m tests.faults

test-blas: develop  ## run the tests marked blas on each kind of kernels of OpenBLAS
	@for kernels in $(KERNELS); do \
		if grep -qw "$${kernels#*:}" /proc/cpuinfo; then \
			echo "OPENBLAS_CORETYPE=$${kernels%:*}"; \
			OPENBLAS_CORETYPE=$${kernels%:*} $(RUN) -m pytest $(SPREAD) \
				-m "blas and not slow and not gpu" $(PYTEST) || exit 1; \
		else echo "This processor lacks $${kernels#*:}, which $${kernels%:*} needs: skipped."; fi; \
	done

smoke: setup  ## run a small study end to end, in seconds
	@$(RUN) -m fairfrontier run smoke --cluster inline

lint: develop  ## check style, types, import layers and locks
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy
	@$(RUN) -c "from importlinter.cli import lint_imports_command; lint_imports_command()" --no-logo
	@if grep -n '://' requirements*.lock benchmarks/peer/*.lock; then \
		echo "A lock names a host: run make lock."; exit 1; fi

format: develop  ## format the code and apply the linter's safe fixes
	@$(RUN) -m ruff check --fix-only .
	@$(RUN) -m ruff format .

docs:  ## build the manual into build/docs; warnings and broken links are errors
	@.ci/setup requirements-docs.lock .docs
	@.docs/bin/python -m sphinx -q -W --keep-going -b html -d build/docs.cache docs build/docs
	@echo "The manual is build/docs/index.html."

bench: develop  ## measure against named peers (BENCH="budro --backend cupy")
	@$(RUN) -m benchmarks $(BENCH)

# What fairgbm's lock pins has no wheels for Python 3.13.
peers:  ## make the environments of peers in .peers
	@for peer in $(PEERS); do \
		newest=; if [ $$peer = fairgbm ]; then newest=3.12; fi; \
		.ci/setup benchmarks/peer/$$peer.lock .peers/$$peer $$newest || exit 1; \
	done

serve: setup  ## start the Prefect server, the deployments and a worker on loopback
	@$(RUN) -m flows serve

lock:  ## resolve the dependencies again (needs uv)
	$(UV_COMPILE) pyproject.toml --extra build --extra cpu --extra dask --extra excel \
		--extra fetch --extra flows --extra notebook --extra papers --extra text -o requirements.lock
	$(UV_COMPILE) pyproject.toml --extra dev -c requirements.lock -o requirements-dev.lock
	$(UV_COMPILE) pyproject.toml --extra docs -c requirements.lock -o requirements-docs.lock
	for peer in $(PEERS); do \
		$(UV_COMPILE) benchmarks/peer/$$peer.in -o benchmarks/peer/$$peer.lock || exit 1; \
	done

wheel: develop  ## build the wheel and the source distribution into dist/, the same bytes each time
	@$(RUN) -m hatchling build -d dist

sbom: wheel  ## list what requirements.lock installs, with its licences, into dist/ (CycloneDX)
	@$(RUN) .ci/sbom.py dist

clean:  ## remove the environment and the tools' caches (results and data/cache stay)
	rm -rf .venv .docs .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis \
		build dist
	find docs fairfrontier papers tasks flows tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
