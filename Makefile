# `make` lists the targets. Rust 1.89 or later is needed, with rustfmt and clippy.

# Seconds of fuzzing for each target: make fuzz SECONDS=600
SECONDS ?= 20
CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)

# Where `make install` puts things; DESTDIR in front of all of it is for packages.
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR ?= $(PREFIX)/share/man
RELEASE := $(TARGET_DIR)/release
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

.PHONY: help build install demo test fuzz tsan siege check check-fmt check-clippy check-doc

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | awk -F'|' '{ printf "make %-13s %s\n", $$1, $$2 }'

build: ## build the ninefold command and the C library into target/release
	$(CARGO) build --locked --release

install: ## install what `make build` built: PREFIX=/usr/local, DESTDIR=
	@test -x $(RELEASE)/ninefold && test -e $(RELEASE)/libninefold.so || { echo 'nothing is built: run `make build` first' >&2; exit 1; }
	install -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(LIBDIR)/pkgconfig' '$(DESTDIR)$(INCLUDEDIR)' \
		'$(DESTDIR)$(MANDIR)/man1' '$(DESTDIR)$(MANDIR)/man3'
	install $(RELEASE)/ninefold '$(DESTDIR)$(PREFIX)/bin/ninefold'
	install -m 755 $(RELEASE)/libninefold.so '$(DESTDIR)$(LIBDIR)/libninefold.so.0'
	ln -sf libninefold.so.0 '$(DESTDIR)$(LIBDIR)/libninefold.so'
	install -m 644 $(RELEASE)/libninefold.a '$(DESTDIR)$(LIBDIR)/libninefold.a'
	install -m 644 crates/ninefold-capi/include/ninefold.h '$(DESTDIR)$(INCLUDEDIR)/ninefold.h'
	install -m 644 crates/ninefold-capi/include/ninefold.hpp '$(DESTDIR)$(INCLUDEDIR)/ninefold.hpp'
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' -e 's|@VERSION@|$(VERSION)|' \
		crates/ninefold-capi/ninefold.pc.in >'$(DESTDIR)$(LIBDIR)/pkgconfig/ninefold.pc'
	$(RELEASE)/ninefold man >'$(DESTDIR)$(MANDIR)/man1/ninefold.1'
	install -m 644 crates/ninefold-capi/man/*.3 '$(DESTDIR)$(MANDIR)/man3'
	for name in as_read as_pread as_write as_pwrite as_lseek as_fstat as_ftruncate as_fsync as_close fdflush; do \
		echo ".so man3/as_open.3" >"$(DESTDIR)$(MANDIR)/man3/$$name.3" || exit 1; done
	for name in sread swrite sclose nf_stream_range; do \
		echo ".so man3/stream.3" >"$(DESTDIR)$(MANDIR)/man3/$$name.3" || exit 1; done
	for name in sopen_by sdopen sdopen_by salloc sfree srealloc sresize sallocAt sflush ssync set_stream_mode Salloc SallocAt Srealloc \
		LockAsfStream UnlockAsfStream u_salloc u_sfree u_srealloc u_sallocAt u_sflush u_Salloc u_SallocAt u_set_stream_mode \
		salloc_full salloc_aligned salloc_line salloc_until sclaim scopy spush spop smodule sposition sfileno as_stream as_dup; do \
		echo ".so man3/sopen.3" >"$(DESTDIR)$(MANDIR)/man3/$$name.3" || exit 1; done
	for name in sfclose sfread sfwrite sgetc sputc sgets sputs sungetc sfprintf svfprintf sfscanf svfscanf sfseek sftell sfflush ssetvbuf; do \
		echo ".so man3/sfopen.3" >"$(DESTDIR)$(MANDIR)/man3/$$name.3" || exit 1; done

demo: build ## build, then run the main job end to end on this machine
	$(TARGET_DIR)/release/ninefold demo

test: ## run everything that CI runs; the last line is the sum
	@FUZZ_SECONDS=$(SECONDS) scripts/test.sh

fuzz: ## fuzz every target; SECONDS=600 for ten minutes each
	@test -x fuzz/run.sh || { echo 'fuzz/run.sh is missing: nothing to fuzz' >&2; exit 1; }
	fuzz/run.sh $(SECONDS)

tsan: ## look for data races in streams with ThreadSanitizer; needs a nightly Rust, see scripts/tsan.sh
	scripts/tsan.sh

siege: build ## lay siege to the server at full length, about ten minutes; latency is judged, so on a quiet machine
	NINEFOLD=$(abspath $(TARGET_DIR))/release/ninefold conformance/judges/siege.sh --full

check: check-fmt check-clippy check-doc ## formatting, lints and docs, with no warning let through

check-fmt: ## is every file as rustfmt leaves it?
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check

check-clippy: ## lints, over libraries, commands, tests and fuzz targets
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	@# A workspace of its own, which else only its own run would find broken. libFuzzer is C++.
	@if ! command -v c++ >/dev/null; then echo 'the fuzz targets are not linted: no C++ compiler (Debian: build-essential)'; \
	else $(CARGO) clippy --locked --manifest-path fuzz/Cargo.toml --all-targets -- -D warnings; fi

check-doc: ## do the docs build, with every link in them?
	@# The C library's docs are its header; the Rust library has its name.
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --workspace --exclude ninefold-capi --no-deps --lib
