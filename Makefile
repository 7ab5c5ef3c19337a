# Every target works on a machine that has only python3, pip and make: it creates .venv and installs what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
WORKERS ?= $(shell expr $(JOBS) + 1)

.PHONY: demo check test test-lowest dist bench quality expected soak spark service streams alarms series thresholds onnx reproduce pictures docs format clean

demo: $(VENV)/.cli
	$(BIN)/python examples/demo.py

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# One worker more than there are cores, because many tests wait for other processes. The Spark tests run separately, with
# one Spark session per worker. The engine tests run twice: compiled, and as plain Python.
test: $(VENV)/.dev
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "not spark and not exhaustive"
	$(BIN)/pytest -n $(JOBS) --dist loadfile tests/spark
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest -n $(JOBS) tests/engine -m "not compiled"

# The library, its adapters, the command line and the service with exactly the lowest versions that pyproject.toml
# declares, in an environment of its own. Warnings are not errors here, because old packages cause warnings in newer
# versions of their own dependencies. River is left out, because its lowest version needs newer versions of numpy and
# numba. Also left out are a check of scikit-learn 1.6 that subtracts a mean from integers, and a bound on memory that an
# old pydantic exceeds.
LOWEST := .venv-lowest
LOWEST_EXTRAS := experiments onnx pyod serve spark
LOWEST_TESTS := tests/engine tests/fleet tests/tables tests/plots tests/report tests/cli tests/service $(filter-out tests/test_river.py \
	tests/test_public_api.py tests/test_benchmarks.py tests/test_soak.py tests/test_series_benchmark.py tests/test_examples.py tests/test_site.py \
	tests/test_paper_to_code.py,$(wildcard tests/test_*.py))

test-lowest: $(LOWEST)/.installed
	NUMBA_CACHE_DIR=$(abspath $(LOWEST))/kernels $(LOWEST)/bin/python -m pytest -n $(JOBS) --dist worksteal -W default \
		-m "not spark and not exhaustive and not page" -k "not check_positive_only_tag_during_fit and not (hostile_configurations and many)" $(LOWEST_TESTS)

# Build the wheel and the sdist; install each into a new environment outside the repository, and try it there.
dist: $(VENV)/.build
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python packaging/smoke_test.py dist/*.whl dist/*.tar.gz

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/run.py

# Tables with categories and gaps, compared with other libraries.
quality: $(VENV)/.bench
	$(BIN)/python benchmarks/quality.py

# Hidden values predicted from the other features, compared with other libraries.
expected: $(VENV)/.bench
	$(BIN)/python benchmarks/expected_values.py

soak: $(VENV)/.dev
	$(BIN)/python benchmarks/soak.py
	$(BIN)/pytest -n $(JOBS) -m exhaustive

# Rows per second on Spark, compared with scikit-learn's forest; needs Java.
spark: $(VENV)/.spark
	$(BIN)/python benchmarks/on_spark.py

# Points per second of the service, compared with the detector alone; memory and latency under attack.
service: $(VENV)/.serve
	$(BIN)/python benchmarks/service.py
	$(BIN)/python benchmarks/attacks.py

streams: $(VENV)/.base
	$(BIN)/python benchmarks/streams.py

# False and useful alarms on streams, with every rule for the threshold.
alarms: $(VENV)/.base
	$(BIN)/python benchmarks/alarms.py

# Time series: NAB and SKAB, compared with other libraries.
series: $(VENV)/.bench
	$(BIN)/python benchmarks/series.py

thresholds: $(VENV)/.base
	$(BIN)/python benchmarks/thresholds.py

# Exported models in ONNX Runtime: labels and scores on all open data sets, and speed.
onnx: $(VENV)/.dev
	$(BIN)/python benchmarks/onnx_export.py

reproduce: $(VENV)/.experiments
	$(BIN)/imondrian reproduce all

# The screenshots of the service page need Chromium.
pictures: $(VENV)/.dev
	$(BIN)/python examples/pictures.py docs/images
	$(BIN)/python examples/concept_pictures.py docs/images
	$(BIN)/python examples/page.py docs/images
	$(BIN)/python examples/series_pictures.py docs/images

# The documentation site, in the folder site. A broken link, anchor or reference is an error (but not with --quiet, which
# also hides warnings from --strict).
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) $(LOWEST) dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis demo site
	find src -name __pycache__ -exec rm -rf {} +

$(VENV)/.base: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.build: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	touch $@

$(LOWEST)/.installed: pyproject.toml packaging/lowest_versions.py
	$(PYTHON) -m venv --clear $(LOWEST)
	$(PYTHON) packaging/lowest_versions.py $(LOWEST_EXTRAS) > $(LOWEST)/requirements.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $(LOWEST)/requirements.txt \
		pytest pytest-xdist hypothesis scipy schemathesis onnxruntime
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

# The benchmark names peers that cannot be installed, and runs without them.
$(VENV)/.bench: $(VENV)/.base
	$(BIN)/python benchmarks/install.py
	touch $@

$(VENV)/.dev $(VENV)/.cli $(VENV)/.experiments $(VENV)/.spark $(VENV)/.serve $(VENV)/.docs: $(VENV)/.%: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	touch $@
