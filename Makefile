# Thin wrappers over the CMake presets. `make help` lists them.

PREFIX ?= /usr/local
SECONDS ?= 60
BUILD := build

# The demo: a question, and a budget smaller than the model.
DEMO_MEM ?= 14M
DEMO_CTX ?= 1024
DEMO_PROMPT ?= What does "owl" mean?
export DEMO_PROMPT  # by way of the environment: it may hold quotes
DEMO_STORE := $(BUILD)/demo-store

.DEFAULT_GOAL := build
.PHONY: help build demo check bench fuzz install clean deps-build deps-check

help:
	@echo 'make demo      set up, build, convert the demo model and ask it: DEMO_PROMPT DEMO_MEM DEMO_CTX'
	@echo 'make build     build/sluice and the libraries'
	@echo 'make check     set up and run every test and check'
	@echo 'make bench     measure kernels, tokenizer and the demo model beside the limits of this machine'
	@echo 'make fuzz      run every fuzz target for SECONDS (60)'
	@echo 'make install   into PREFIX (/usr/local)'
	@echo 'make clean     remove build/'

deps-build:
	@tools/deps.sh build

deps-check:
	@tools/deps.sh check

$(BUILD)/CMakeCache.txt:
	cmake --preset release

build: deps-build $(BUILD)/CMakeCache.txt
	cmake --build --preset release

$(DEMO_STORE)/manifest.json: | build
	$(BUILD)/sluice convert models/demo $(DEMO_STORE)

demo: build $(DEMO_STORE)/manifest.json
	$(BUILD)/sluice plan $(DEMO_STORE) --mem $(DEMO_MEM) --ctx $(DEMO_CTX)
	$(BUILD)/sluice run $(DEMO_STORE) "$$DEMO_PROMPT" --mem $(DEMO_MEM) --ctx $(DEMO_CTX) --temp 0 --stats

check: deps-check
	@tools/check.sh

bench: build $(DEMO_STORE)/manifest.json
	$(BUILD)/bench/bench_kernels
	$(BUILD)/bench/bench_tokenizer models/demo/tokenizer.json docs/memory.md
	$(BUILD)/bench/bench_model $(DEMO_STORE)

fuzz: deps-check
	@tools/fuzz.sh $(SECONDS)

install: build
	cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	rm -rf $(BUILD)
