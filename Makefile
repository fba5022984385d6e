# The front door. Meson does the building (see meson.build); this file says what there is to do and does it with one word.
# `make help` prints the targets.

PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc)
WERROR ?= true
FUZZ_SECONDS ?= 60
SOAK_RUNS ?= 100000
SOAK_SECONDS ?= 1800
ARGS ?=
PYTHON := /usr/bin/python3

# Every C file that is ours, for the checks.
C_FILES = $(shell git ls-files --cached --others --exclude-standard '*.c' '*.h')
FUZZ_TARGETS = $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))

.DEFAULT_GOAL := all
.PHONY: all help serve test test-v2 soak install python-deb bench bench-trace fuzz format lint lint-format lint-layers lint-sources lint-text lint-tidy lint-cppcheck \
	clean build build-asan deps deps-serve deps-soak deps-test

all: deps build ## Build build/hotcell and everything beside it. Missing build packages are installed first.

help: ## Print this table.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "  Variables: PREFIX ($(PREFIX)), DESTDIR, JOBS ($(JOBS)), WERROR ($(WERROR)), FUZZ_SECONDS ($(FUZZ_SECONDS)), SOAK_RUNS ($(SOAK_RUNS)), SOAK_SECONDS ($(SOAK_SECONDS)),"
	@echo "  ARGS for make serve (options of hotcell serve, such as ARGS=\"--listen 127.0.0.1:7700\") and make bench (such as"
	@echo "  ARGS=\"warm --quick\"), TESTS, which names the sections for make test (tools/run-tests --list prints them), and VARIANTS for make test-v2."

serve: deps-serve build ## Start a server in the foreground on 127.0.0.1:7600 and 127.0.0.1:6000, and say how to call it. ARGS are passed on.
	@tools/serve build/hotcell $(ARGS)

test: deps-test build ## Run every test and check, section by section. The last line counts them. Installs what tests need.
	@tools/run-tests $(TESTS)

test-v2: deps-test build ## Run what depends on the kernel in virtual machines: cgroup v2, v1, hybrid, none, systemd. VARIANTS="v2 v1" chooses among them.
	@tests/vm/run $(if $(VARIANTS),$(addprefix --variant ,$(VARIANTS)),--full)

soak: deps-soak build ## SOAK_RUNS runs, and SOAK_SECONDS of sandboxes, against private servers, with faults injected; nothing may leak or grow. Takes a while.
	@$(PYTHON) tests/soak/soak.py --program build/hotcell --runs $(SOAK_RUNS)
	@$(PYTHON) tests/soak/sandboxes.py --program build/hotcell --seconds $(SOAK_SECONDS)

install: all ## Install programs, library, header, languages, man page, completions and systemd units below PREFIX (and DESTDIR).
	@meson configure build -Dprefix=$(PREFIX) -Dlibdir=lib
	@ninja -C build -j $(JOBS)
	@DESTDIR=$(DESTDIR) meson install -C build --no-rebuild --quiet
	@echo "Installed below $(DESTDIR)$(PREFIX)."

python-deb: ## Build the Debian package of the Python client, build/python3-hotcell_VERSION_all.deb.
	@packaging/debian-python/build build

bench: all ## Compare hotcell with bubblewrap, runc, docker and bare programs. One table, and one JSON file in bench/out/. ARGS are passed on.
	@tools/deps bench
	@$(PYTHON) bench/run.py $(ARGS)

bench-trace: all ## Show where the time of a warm run goes, step by step; of Python, or of the case in ARGS (warm-perl). Needs root and perf.
	@tools/deps bench
	@$(PYTHON) bench/run.py --trace-warm $(ARGS)

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
	@echo "== compare unwrap with Python for $(FUZZ_SECONDS) s"
	@$(PYTHON) tests/fuzz/differential_unwrap.py build-fuzz/tests/fuzz/unwrap_print --seconds $(FUZZ_SECONDS)

format: ## Put the C files into the style of .clang-format.
	@clang-format -i $(C_FILES)

lint: lint-format lint-layers lint-sources lint-text lint-tidy lint-cppcheck ## Check formatting, layers, lists of sources, words, clang-tidy, cppcheck.
	@echo "No faults found."

clean: ## Remove the build trees.
	@rm -rf build build-asan build-fuzz

# ---- what the targets above are made of ----

deps:
	@tools/deps build

deps-serve: deps
	@tools/deps libraries

deps-soak:
	@tools/deps soak

deps-test:
	@tools/deps test

build: build/build.ninja
	@ninja -C build -j $(JOBS)

build/build.ninja:
	@meson setup build -Dprefix=$(PREFIX) -Dlibdir=lib -Dwerror=$(WERROR)

build-asan:
	@test -f build-asan/build.ninja || meson setup build-asan -Dwerror=$(WERROR) -Doptimization=0 -Db_lundef=false \
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
