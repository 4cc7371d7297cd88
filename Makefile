# Thin wrappers over the CMake presets. `make help` lists them.

PREFIX ?= /usr/local
SECONDS ?= 60
BUILD := build

# The demo: a question, and a budget smaller than the model.
DEMO_MEM ?= 14M
DEMO_CTX ?= 1024
DEMO_PROMPT ?= What does "owl" mean?
DEMO_STORE := $(BUILD)/demo-store

.DEFAULT_GOAL := build
.PHONY: help build demo check bench fuzz install clean deps-build deps-check

help:
	@echo 'make demo      set up, build, convert the demo model and ask it: DEMO_PROMPT DEMO_MEM DEMO_CTX'
	@echo 'make build     build/sluice and the libraries'
	@echo 'make check     set up and run every test and check'
	@echo 'make bench     measure the kernels beside what this machine can read'
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

demo: build
	@test -f $(DEMO_STORE)/manifest.json || $(BUILD)/sluice convert models/demo $(DEMO_STORE)
	$(BUILD)/sluice plan $(DEMO_STORE) --mem $(DEMO_MEM) --ctx $(DEMO_CTX)
	$(BUILD)/sluice run $(DEMO_STORE) '$(DEMO_PROMPT)' --mem $(DEMO_MEM) --ctx $(DEMO_CTX) --stats

check: deps-check
	@tools/check.sh

bench: build
	cmake --build --preset release --target bench

fuzz: deps-check
	@tools/fuzz.sh $(SECONDS)

install: build
	cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	rm -rf $(BUILD)
