# Two commands for a newcomer: `make demo` and `make test`. Everything is installed into .venv, from PyPI only.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
# A part of the suite tells the whole of it what its tests came to, in a file of its own in that folder.
PYTEST = $(BIN)/python -m pytest $(if $(OUTCOMES),--outcomes=$(OUTCOMES)/$@)
BROKERS := $(addprefix tests/unit/,broker broker_log)
SERVICES := $(addprefix tests/unit/,election metadata quota)
CLIENTS := $(addprefix tests/unit/,client client_groups local)
UNITS := $(filter-out $(BROKERS) $(SERVICES) $(CLIENTS) %__pycache__,$(wildcard tests/unit/*))
UNITS_TO_DOCS := $(filter $(wildcard tests/unit/[a-d]*),$(UNITS))
# Tests start some hundred processes: where the environment forbids to keep bytecode, each of them compiles all that it
# imports, for a third of the time of its start.
export PYTHONDONTWRITEBYTECODE :=

# The files of the tests that run alone: pytest looks through no other, which took it ten seconds.
ALONE = $(shell grep -rl --include='test_*.py' 'mark\.alone' tests)

# What the wire was at the last release, or, before the first one, when it was declared stable.
RELEASED := proto/released.binpb

.PHONY: help install demo bench bench-release kubernetes-judge picture-judge test test-full check-clusters check-other-clusters check-units check-other-units check-brokers check-services check-clients check-stores check-loops-of-election check-loops lint site proto proto-check proto-release lock images wheel sbom dependency-check upgrade-judge soak clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

install: $(VENV)/.installed ## make the virtual environment (.venv) and install everything into it

# pip installs uv, and uv the rest in a third of pip's time; both check the hash of every file against the lock, uv with
# the index that pip was told of. The project itself is installed in place.
UV = $(if $(PIP_INDEX_URL),UV_DEFAULT_INDEX="$(PIP_INDEX_URL)") $(BIN)/uv pip install --python $(BIN)/python

$(VENV)/.installed: requirements.lock pyproject.toml
	@test -d $(VENV) || python3 -m venv $(VENV)
	@echo "installing into $(VENV) (about 700 MB with Spark; some minutes on the first run)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement <(awk '/^uv==/{on=1} on{print} on&&!/\\$$/{exit}' requirements.lock)
	@$(UV) --require-hashes --compile-bytecode --requirement requirements.lock
	@$(UV) --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: install ## start a cluster, kill its leaders under load, prove that nothing was lost
	@$(BIN)/python -m regnum_local.demo

bench: install ## every benchmark at a small size on both stores, into bench/results/quick (at most 15 minutes), then ten figures beside the last release's; PEER=COMMAND: and beside another program's
	@$(BIN)/regnum-bench all --size quick $(if $(PEER),--peer "$(PEER)")

bench-release: install ## at a release, after `make bench` on a quiet machine: these ten figures are what later ones are shown beside
	@$(BIN)/regnum-bench ten --release

# For a person with a cluster that may be hurt; ARGS="--help" says what there is.
kubernetes-judge: install ## install an overlay on the cluster of KUBECONFIG, hurt it under load, say which promises held
	@$(BIN)/python -m regnum_testing.kubernetes $(ARGS)

# Needs Chromium (Debian: apt-get install chromium); leaves screenshots in ARGS="--out DIR".
picture-judge: install ## the report and the console in a real browser: no request elsewhere, no error, figures as in JSON, light, dark and narrow; ten kills; dashboards, collector and Zipkin where they are
	@$(BIN)/python -m regnum_testing.pictures $(ARGS)

# Tests wait for much, so that five parts run at once, the longest first, and each of the others behind the first that ends; what measures CPU time comes afterwards, in two halves. A test that
# failed runs once more at the end, by itself; the last lines say what it all came to (decision 65).
test: install ## every check, and every test but the longest (about 10 minutes on two processors)
	@$(BIN)/python -m regnum_testing.suite \
	  "check-clusters check-services check-units check-other-clusters check-other-units check-brokers check-clients check-stores lint" \
	  "check-loops-of-election check-loops"

test-full: lint ## every check and every test, one after another
	@$(BIN)/python -m pytest

check-stores: install
	@$(PYTEST) -m "not full and not alone" tests/contract tests/faults tests/simulation

check-clusters: install
	@$(PYTEST) -m "not full and not alone" $(wildcard tests/integration/test_[a-l]*.py)

check-other-clusters: install
	@$(PYTEST) -m "not full and not alone" $(wildcard tests/integration/test_[m-z]*.py)

check-loops-of-election: install
	@$(PYTEST) -m "alone and not full" $(filter tests/unit/election/%,$(ALONE))

check-loops: install
	@$(PYTEST) -m "alone and not full" $(filter-out tests/unit/election/%,$(ALONE))

check-units: install
	@$(PYTEST) -m "not full and not alone" $(UNITS_TO_DOCS)

check-other-units: install
	@$(PYTEST) -m "not full and not alone" $(filter-out $(UNITS_TO_DOCS),$(UNITS))

check-brokers: install
	@$(PYTEST) -m "not full and not alone" $(BROKERS)

check-services: install
	@$(PYTEST) -m "not full and not alone" $(SERVICES)

check-clients: install
	@$(PYTEST) -m "not full and not alone" $(CLIENTS)

upgrade-judge: install ## a rolling upgrade from the last release (or FROM=REF) under load, back, and up again, on both stores (about 12 minutes); TLS=1: over TLS with access rules
	@$(BIN)/python -m regnum_testing.upgrades --from "$(FROM)" --store etcd $(if $(TLS),--tls)
	@$(BIN)/python -m regnum_testing.upgrades --from "$(FROM)" --store zookeeper $(if $(TLS),--tls)

site: install ## the site, from docs/ into build/site; fails on a link that leads nowhere
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/site

lint: install proto-check site ## style, types, import contracts, wire contract, the site
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/buf lint
	@$(BIN)/buf breaking --against $(RELEASED)

proto: install ## regenerate the code of proto/ and of etcd3's wire messages, and the pages that are made from code
	@$(BIN)/python -m regnum_testing.regenerate --write
	@$(BIN)/python -m regnum_testing.kafka_wire --write
	@$(BIN)/python -m regnum_testing.error_table --write
	@$(BIN)/python -m regnum_testing.metrics_page --write
	@$(BIN)/python -m regnum_testing.configs_page --write
	@$(BIN)/python -m regnum_testing.bounds_page --write
	@$(BIN)/python -m regnum_testing.prometheus_rule --write
	@$(BIN)/python -m regnum_testing.dashboards --write
	@$(BIN)/python -m regnum_testing.health_ways --write

proto-release: install ## at a release, and only then: what the wire is now is what later changes are held against
	@$(BIN)/buf build --exclude-source-info --output $(RELEASED)

proto-check: install ## fail when the generated code is not what the generator makes
	@$(BIN)/python -m regnum_testing.regenerate
	@$(BIN)/python -m regnum_testing.kafka_wire

lock: install ## resolve the newest versions into requirements.lock
	@$(BIN)/uv pip compile --quiet --python-version 3.11 --no-header --generate-hashes --all-extras --upgrade pyproject.toml --output-file requirements.lock >/dev/null
	@$(BIN)/python -m regnum_testing.image_locks --write

HOURS := 2
soak: install ## whole clusters under faults in one thread, seed after seed; keeps what fails, adds to the count in docs/reliability.md
	@$(BIN)/python -m regnum_testing.simulation.soak --hours $(HOURS)

images: ## images of the services and of the job over traces, with buildah, podman or docker; for a release with BASE=...@sha256:...
	@BASE="$(BASE)" deploy/docker/build.sh images

wheel: install ## dist/regnum-VERSION-py3-none-any.whl: everything, to be installed without a checkout
	@$(BIN)/python -m hatchling build --target wheel

sbom: install ## dist/*.cdx.json: what the wheel and the images are made of (CycloneDX), from the locks; BASE as for images
	@$(BIN)/python -m regnum_testing.bill_of_materials dist $(if $(BASE),--base "$(BASE)")

# It asks PyPI about every package, so that it is no part of `make test`: what is known changes from day to day. --strict:
# a package that could not be looked up is a failure, too.
AUDIT := $(VENV)/audit
dependency-check: ## are there known vulnerabilities in what the locks name? Fails when it could not look one of them up
	@test -x $(AUDIT)/bin/pip-audit || { python3 -m venv $(AUDIT) && $(AUDIT)/bin/pip install --quiet --disable-pip-version-check pip-audit; }
	@$(AUDIT)/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off --requirement requirements.lock

clean: ## remove the virtual environment and all caches
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -prune -exec rm -rf {} +
