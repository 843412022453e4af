# Everything the project is built, checked and shown with. Needs Rust by rustup, a C compiler and git.

CARGO ?= cargo
WASM_TARGET := wasm32-wasip2

# The whole system as the tests, the demo and a person see it: one dev build, shared by all three. Examples are part of
# it so that cargo settles on the same features of every dependency as it does for the tests.
DEV_BUILD := $(CARGO) build --workspace --bins --examples
DEV_DIR = $${CARGO_TARGET_DIR:-target}/debug

.DEFAULT_GOAL := build
.PHONY: help wasm-target plugins build check fmt test fuzz third-party demo bench

help:             ## this list
	@grep -hE '^[a-z-]+: .*##|^[a-z-]+:  *##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  \1\t/' | expand -t 16

wasm-target:      ## add the target that guests are built for, when it is missing
	@test -d "$$(rustc --print target-libdir --target $(WASM_TARGET))" || rustup target add $(WASM_TARGET)

plugins: wasm-target ## build the standard plugins on their own (the host's build does it as well)
	cd plugins && $(CARGO) build --locked --release --target $(WASM_TARGET)

build: wasm-target ## build `deed` for development
	$(DEV_BUILD)

check: wasm-target ## everything that can be judged without running the system
	@$(CARGO) fmt --version >/dev/null 2>&1 || rustup component add rustfmt
	@$(CARGO) clippy --version >/dev/null 2>&1 || rustup component add clippy
	$(CARGO) fmt --all --check
	cd plugins && $(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	cd plugins && $(CARGO) clippy --workspace --target $(WASM_TARGET) -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps
	$(CARGO) test --workspace --test tidy --test wit_reference

fmt:              ## format both workspaces
	$(CARGO) fmt --all
	cd plugins && $(CARGO) fmt --all

test: build       ## every test, the crash sweeps and the guests' own included
	$(CARGO) test --workspace
	cd plugins && $(CARGO) test --locked

# Sequences of the fuzz target, each with its crash images, and the seed of the first one.
COUNT ?= 100000
SEED ?= 1
# Contained calls whose publication loses power, each in more than 20 images; random trees; processes that are killed.
LOSSES ?= 1000
TREES ?= 2500
DEATHS ?= 500
STAGE_FUZZ = DEED_FUZZ_SEED=$(SEED) DEED_FUZZ_COUNT=$(1) $(CARGO) test --workspace --lib stage::tests::$(2) -- --nocapture

fuzz: wasm-target ## random work on failing disks (COUNT and SEED choose how much, and which), all double kills, and the standard plugins over 20 seeds
	DEED_FUZZ_SEED=$(SEED) DEED_FUZZ_COUNT=$(COUNT) $(CARGO) test -p deed-journal --test simulation a17 -- --nocapture
	$(MAKE) build
	$(call STAGE_FUZZ,$(LOSSES),power_loss)
	$(call STAGE_FUZZ,$(TREES),random_trees)
	$(call STAGE_FUZZ,$(DEATHS),sudden_death)
	$(CARGO) test --workspace --test double_kills -- --ignored --nocapture
	$(CARGO) test --workspace --test crash_test -- --ignored --nocapture

third-party: build ## a component that nobody here wrote, from the Python package index
	$(CARGO) test --workspace --test foreign -- --ignored

demo: build       ## a mission that is killed twice and comes back
	@$(DEV_DIR)/examples/demo

bench: wasm-target ## what a call costs
	$(CARGO) bench --workspace
