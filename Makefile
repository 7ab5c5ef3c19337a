# Every target works on a machine that has only python3, pip and make: it creates .venv and installs what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

.PHONY: demo check test bench quality expected soak spark service streams alarms series thresholds onnx reproduce pictures format clean

demo: $(VENV)/.cli
	$(BIN)/python examples/demo.py

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The Spark tests run separately, with one Spark session per worker. The engine tests run twice: compiled, and as plain
# Python.
test: $(VENV)/.dev
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m "not spark and not exhaustive"
	$(BIN)/pytest -n $(JOBS) --dist loadfile tests/spark
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest -n $(JOBS) tests/engine -m "not compiled"

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
	$(BIN)/python examples/page.py docs/images
	$(BIN)/python examples/series_pictures.py docs/images

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis demo
	find src -name __pycache__ -exec rm -rf {} +

$(VENV)/.base: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

# The benchmark names peers that cannot be installed, and runs without them.
$(VENV)/.bench: $(VENV)/.base
	$(BIN)/python benchmarks/install.py
	touch $@

$(VENV)/.dev $(VENV)/.cli $(VENV)/.experiments $(VENV)/.spark $(VENV)/.serve: $(VENV)/.%: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	touch $@
