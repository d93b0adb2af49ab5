# foretell: build, try, test. `make help` lists the targets.

CARGO ?= cargo
PREFIX ?= /usr/local
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)

.PHONY: help build run test test-python check check-deep docs bench bench-loader bench-peers install install-files uninstall clean setup-tests

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

build: ## Build the command and its libraries into target/release
	@scripts/need build
	$(CARGO) build --release --locked -p foretell -p foretell-store

run: ## Build, and show what foretell does on an emulated disk array
	@scripts/need build fuse
	$(CARGO) build --release --locked -p foretell
	$(TARGET_DIR)/release/foretell demo

test: setup-tests ## Install the tests' requirements, and run all tests
	@scripts/need build
	$(CARGO) test --locked --workspace --no-fail-fast

test-python: ## Lint and test the Python package, in a virtual environment of its own (.venv)
	scripts/test-python

check: ## Run what continuous integration runs: format, lint, tests, the Python package, docs
	scripts/check

check-deep: ## Run the longer checks: Miri, sanitizers, longer property tests
	@scripts/need build
	scripts/check-deep

docs: ## Check the links of the documentation, and build it as a book into target/book
	@scripts/need build
	@CARGO="$(CARGO)" scripts/docs

bench: ## Measure, and print the figures of docs/results/performance.md, advice.md, applications.md and collective-live.md
	@scripts/need build
	$(CARGO) build --release --locked -p foretell
	scripts/bench $(TARGET_DIR)/release
	scripts/bench-reread $(TARGET_DIR)/release
	scripts/bench-programs $(TARGET_DIR)/release
	scripts/bench-starts $(TARGET_DIR)/release
	scripts/bench-daemon $(TARGET_DIR)/release
	scripts/bench-sharing $(TARGET_DIR)/release
	scripts/bench-replay $(TARGET_DIR)/release
	scripts/bench-advice $(TARGET_DIR)/release
	scripts/bench-cold-start $(TARGET_DIR)/release
	scripts/bench-applications $(TARGET_DIR)/release
	scripts/bench-collective $(TARGET_DIR)/release
	$(CARGO) bench --locked --quiet --manifest-path bench/Cargo.toml
	$(CARGO) run --release --locked --quiet --manifest-path bench/Cargo.toml --bin policy-scale -- \
		--svg $(TARGET_DIR)/policy-scale.svg
	$(CARGO) run --release --locked --quiet --manifest-path bench/Cargo.toml --bin policy-memory
	$(CARGO) run --release --locked --quiet --manifest-path bench/Cargo.toml --bin sim-speed
	$(CARGO) run --release --locked --quiet --manifest-path bench/Cargo.toml --bin cache-speed
	$(CARGO) run --release --locked --quiet --manifest-path bench/Cargo.toml --bin cache-speed -- --memory
	$(CARGO) run --release --locked --quiet -p foretell-testbed --example store_speed
	$(CARGO) run --release --locked --quiet -p foretell-learn --example graph_speed
	$(CARGO) run --release --locked --quiet -p foretell-cache --all-features --example two_jobs
	$(CARGO) run --release --locked --quiet -p foretell-cache --all-features --example tier_epochs
	$(CARGO) run --release --locked --quiet -p foretell-cache --all-features --example local_reads

bench-peers: build ## Measure foretell beside other clients of object stores; needs a package index
	scripts/bench-peers --plot $(TARGET_DIR)/peers.svg

bench-loader: build ## Measure loaders of torch over a slow store; needs a package index
	scripts/bench-loader

install: build ## Install below PREFIX (/usr/local)
	@$(MAKE) --no-print-directory install-files

# Without a build first. The units name the installed program and page.
install-files:
	install -Dm755 $(TARGET_DIR)/release/foretell "$(DESTDIR)$(PREFIX)/bin/foretell"
	install -Dm755 $(TARGET_DIR)/release/libforetell_preload.so \
		"$(DESTDIR)$(PREFIX)/lib/foretell/libforetell_preload.so"
	install -Dm755 $(TARGET_DIR)/release/libforetell_mpi.so \
		"$(DESTDIR)$(PREFIX)/lib/foretell/libforetell_mpi.so"
	install -Dm755 $(TARGET_DIR)/release/foretell-tools "$(DESTDIR)$(PREFIX)/lib/foretell/foretell-tools"
	install -Dm755 $(TARGET_DIR)/release/libforetell.so "$(DESTDIR)$(PREFIX)/lib/libforetell.so"
	install -Dm644 $(TARGET_DIR)/release/libforetell.a "$(DESTDIR)$(PREFIX)/lib/libforetell.a"
	install -Dm644 protocol/include/foretell.h "$(DESTDIR)$(PREFIX)/include/foretell.h"
	install -Dm644 protocol/include/foretell_ioctl.h "$(DESTDIR)$(PREFIX)/include/foretell_ioctl.h"
	install -Dm755 $(TARGET_DIR)/release/libforetell_store.so "$(DESTDIR)$(PREFIX)/lib/libforetell_store.so.0"
	ln -sf libforetell_store.so.0 "$(DESTDIR)$(PREFIX)/lib/libforetell_store.so"
	install -Dm644 protocol/include/foretell_store.h "$(DESTDIR)$(PREFIX)/include/foretell_store.h"
	install -Dm644 docs/guide/daemon.md "$(DESTDIR)$(PREFIX)/share/doc/foretell/daemon.md"
	install -d "$(DESTDIR)$(PREFIX)/lib/systemd/user"
	for unit in foretell.service foretell.socket foretell-cache.socket; do \
		sed 's|/usr/local|$(PREFIX)|' packaging/systemd/$$unit > "$(DESTDIR)$(PREFIX)/lib/systemd/user/$$unit" && \
		chmod 644 "$(DESTDIR)$(PREFIX)/lib/systemd/user/$$unit" || exit 1; \
	done
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" -ne 0 ] || ldconfig

uninstall: ## Remove the installed files
	rm -f "$(DESTDIR)$(PREFIX)/bin/foretell" "$(DESTDIR)$(PREFIX)/lib/libforetell.so" \
		"$(DESTDIR)$(PREFIX)/lib/libforetell.a" "$(DESTDIR)$(PREFIX)/include/foretell.h" \
		"$(DESTDIR)$(PREFIX)/include/foretell_ioctl.h" \
		"$(DESTDIR)$(PREFIX)/lib/libforetell_store.so" "$(DESTDIR)$(PREFIX)/lib/libforetell_store.so.0" \
		"$(DESTDIR)$(PREFIX)/include/foretell_store.h" \
		"$(DESTDIR)$(PREFIX)/lib/systemd/user/foretell.service" \
		"$(DESTDIR)$(PREFIX)/lib/systemd/user/foretell.socket" \
		"$(DESTDIR)$(PREFIX)/lib/systemd/user/foretell-cache.socket"
	rm -rf "$(DESTDIR)$(PREFIX)/lib/foretell" "$(DESTDIR)$(PREFIX)/share/doc/foretell"

clean: ## Remove everything that was built
	$(CARGO) clean

setup-tests:
	@scripts/setup-tests $(TARGET_DIR)
