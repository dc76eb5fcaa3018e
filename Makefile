# make demo      install, remove swearing from the bundled model, say where the card and the report are
# make test      install, run the tests, in two processes
# make test-all  the same with all model types and what is large: a change of model code or of a library must pass it
# make check     lint and type check
# make oldest    run the tests with the oldest versions that pyproject.toml allows
# make cards     write the example cards again

PYTHON ?= python3
BIN := .venv/bin
OUT := build/demo
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal

.PHONY: demo test test-all check oldest cards clean

demo: .venv/installed
	@rm -rf $(OUT)
	$(BIN)/editkit remove-capability swear --out $(OUT)
	@echo
	@echo "The model card:  $(OUT)/README.md"
	@echo "The report page: $(OUT)/editkit/report.html"

test: .venv/tools
	$(PYTEST)

test-all: .venv/tools
	$(PYTEST) -m ""

check: .venv/tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

oldest:
	$(PYTHON) -m venv build/oldest
	build/oldest/bin/python -m pip install --quiet --disable-pip-version-check uv
	build/oldest/bin/uv pip install --quiet --python build/oldest/bin/python --resolution lowest-direct --editable '.[dev]'
	build/oldest/bin/python -m pytest -m ""

cards: .venv/installed
	$(BIN)/python cards/make.py

clean:
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --editable .
	@touch $@

.venv/tools: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --editable '.[dev,eval]'
	@touch $@
