# The front door. Meson does the building (see meson.build); this file says what there is to do and does it with one word.
# `make help` prints the targets.

PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc)
WERROR ?= true
FUZZ_SECONDS ?= 60
PYTHON := /usr/bin/python3

# Every C file that is ours, for the checks.
C_FILES = $(shell git ls-files --cached --others --exclude-standard '*.c' '*.h')
FUZZ_TARGETS = $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))

.DEFAULT_GOAL := all
.PHONY: all help test test-v2 install bench fuzz format lint lint-format lint-layers lint-sources lint-text lint-tidy lint-cppcheck \
	clean build build-asan deps deps-test

all: deps build ## Build build/hotcell and everything beside it. Missing build packages are installed first.

help: ## Print this table.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "  Variables: PREFIX ($(PREFIX)), DESTDIR, JOBS ($(JOBS)), WERROR ($(WERROR)), FUZZ_SECONDS ($(FUZZ_SECONDS)),"
	@echo "  and TESTS, which names the sections for make test (tools/run-tests --list prints them)."

test: deps-test build ## Run every test and check, section by section. The last line counts them. Installs what tests need.
	@tools/run-tests $(TESTS)

test-v2: deps-test build ## Run the whole test suite in virtual machines: cgroup v2, v1, hybrid, none, and others.
	@tests/vm/run --full

install: all ## Install program, library, header, languages, man page and completions below PREFIX (and DESTDIR).
	@meson configure build -Dprefix=$(PREFIX) -Dlibdir=lib
	@ninja -C build -j $(JOBS)
	@DESTDIR=$(DESTDIR) meson install -C build --no-rebuild --quiet
	@echo "Installed below $(DESTDIR)$(PREFIX)."

bench: all ## Compare hotcell with bubblewrap, runc and docker. One table, and one JSON file in bench/out/.
	@tools/deps bench
	@$(PYTHON) bench/run.py

fuzz: deps-test ## Fuzz each parser for FUZZ_SECONDS with libFuzzer and ASan. New inputs are kept in build-fuzz/corpus/.
	@test -f build-fuzz/build.ninja || CC=clang meson setup build-fuzz -Dfuzz=true -Db_lundef=false \
		-Db_sanitize=address,undefined >/dev/null
	@ninja -C build-fuzz -j $(JOBS)
	@for target in $(FUZZ_TARGETS); do \
		echo "== fuzz $$target for $(FUZZ_SECONDS) s"; \
		mkdir -p build-fuzz/corpus/$$target; \
		build-fuzz/tests/fuzz/fuzz_$$target -max_total_time=$(FUZZ_SECONDS) -timeout=10 -print_final_stats=1 \
			-artifact_prefix=build-fuzz/$$target- build-fuzz/corpus/$$target tests/fuzz/corpus/$$target || exit 1; \
	done

format: ## Put the C files into the style of .clang-format.
	@clang-format -i $(C_FILES)

lint: lint-format lint-layers lint-sources lint-text lint-tidy lint-cppcheck ## Check formatting, layers, lists of sources, words, clang-tidy, cppcheck.
	@echo "No faults found."

clean: ## Remove the build trees.
	@rm -rf build build-asan build-fuzz

# ---- what the targets above are made of ----

deps:
	@tools/deps build

deps-test:
	@tools/deps test

build: build/build.ninja
	@ninja -C build -j $(JOBS)

build/build.ninja:
	@meson setup build -Dprefix=$(PREFIX) -Dlibdir=lib -Dwerror=$(WERROR)

build-asan:
	@test -f build-asan/build.ninja || meson setup build-asan -Dwerror=$(WERROR) -Db_lundef=false \
		-Db_sanitize=address,undefined >/dev/null
	@ninja -C build-asan -j $(JOBS)

lint-format:
	@clang-format --dry-run -Werror $(C_FILES)

lint-layers:
	@tools/check-layers

lint-sources:
	@tools/check-sources

lint-text:
	@tools/check-text

lint-tidy: build/build.ninja
	@tools/tidy

lint-cppcheck:
	@cppcheck --quiet --enable=warning,performance,portability --inline-suppr --suppress=missingIncludeSystem \
		--suppressions-list=tools/cppcheck-suppressions --error-exitcode=1 --std=c11 -j $(JOBS) \
		-D_GNU_SOURCE -D__x86_64__ -I src -I include src include examples
