# make demo   install, remove swearing from the bundled model, say where the card and the report are
# make test   install, run the tests
# make check  lint and type check
# make cards  write the example cards again

PYTHON ?= python3
BIN := .venv/bin
OUT := build/demo

.PHONY: demo test check cards clean

demo: .venv/installed
	@rm -rf $(OUT)
	$(BIN)/editkit remove-capability swear --out $(OUT)
	@echo
	@echo "The model card:  $(OUT)/README.md"
	@echo "The report page: $(OUT)/editkit/report.html"

test: .venv/tools
	$(BIN)/python -m pytest

check: .venv/tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

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
