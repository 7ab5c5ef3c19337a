# Each target works alone on a machine that has python3, pip and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo check test bench soak streams format clean

demo: $(VENV)/.base
	$(BIN)/python examples/breast_cancer.py

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The engine's tests run twice: compiled, and as the plain Python they are written in.
test: $(VENV)/.dev
	$(BIN)/pytest
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest tests/engine -m "not compiled"

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/run.py

soak: $(VENV)/.base
	$(BIN)/python benchmarks/soak.py

streams: $(VENV)/.base
	$(BIN)/python benchmarks/streams.py

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src -name __pycache__ -exec rm -rf {} +

$(VENV)/.base: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.dev $(VENV)/.bench: $(VENV)/.%: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	touch $@
