# `make` lists the targets. Rust 1.89 or later is needed, with rustfmt and clippy.

# Seconds of fuzzing for each target: make fuzz SECONDS=600
SECONDS ?= 20
CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)

.PHONY: help build demo test fuzz siege check check-fmt check-clippy check-doc

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | awk -F'|' '{ printf "make %-13s %s\n", $$1, $$2 }'

build: ## build the ninefold command into target/release
	$(CARGO) build --locked --release

demo: build ## build, then run the main job end to end on this machine
	$(TARGET_DIR)/release/ninefold demo

test: ## run everything that CI runs; the last line is the sum
	@FUZZ_SECONDS=$(SECONDS) scripts/test.sh

fuzz: ## fuzz every target; SECONDS=600 for ten minutes each
	@test -x fuzz/run.sh || { echo 'fuzz/run.sh is missing: nothing to fuzz' >&2; exit 1; }
	fuzz/run.sh $(SECONDS)

siege: build ## lay siege to the server at full length, about ten minutes; latency is judged, so on a quiet machine
	NINEFOLD=$(abspath $(TARGET_DIR))/release/ninefold conformance/judges/siege.sh --full

check: check-fmt check-clippy check-doc ## formatting, lints and docs, with no warning let through

check-fmt: ## is every file as rustfmt leaves it?
	$(CARGO) fmt --all --check

check-clippy: ## lints, over libraries, commands and tests
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

check-doc: ## do the docs build, with every link in them?
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --workspace --no-deps --lib
