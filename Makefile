# Everything a person runs. `make demo` and `make test` work on a bare machine with Rust, Python 3 and a C compiler.

MODEL ?= models/k3-demo
CARGO ?= cargo
PLUGIN := $(if $(TANDEM_PJRT_PLUGIN),$(TANDEM_PJRT_PLUGIN),.tools/pjrt/pjrt_c_api_cpu_plugin.so)

.PHONY: help build plugin etcd libtpu tpu-check demo test test-rust test-cluster test-browser sdk test-sdk test-helm \
	test-kubernetes tools lint deny audit fmt up bench bench-kvxfer autoscale

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "%-16s %s\n", $$1, $$2}' Makefile

demo: build ## Start a router, a prefill and a decode worker, send one prompt through them, say where the time went
	@scripts/demo.sh $(MODEL)

build: plugin ## The four programs, in target/release
	@$(CARGO) build --release --bins

plugin: $(PLUGIN) ## The PJRT CPU plugin, pinned by sha256 (TANDEM_PJRT_PLUGIN names another)

.tools/pjrt/pjrt_c_api_cpu_plugin.so: scripts/plugin.sh
	@scripts/plugin.sh

etcd: ## The etcd server that tests run, pinned by sha256 (TANDEM_ETCD_BINARY names another)
	@scripts/etcd.sh

libtpu: ## The TPU compiler, pinned by sha256 (TANDEM_LIBTPU names another); Google Cloud's terms apply to it
	@scripts/libtpu.sh

tpu-check: libtpu ## Compile full-width programs for TPUs that are not there; JOBS=part of a name runs some of them
	@$(CARGO) run --release -p tandem-tpu-check -- --only "$(JOBS)"

test: ## All tests, after installing what they need
	@$(MAKE) --no-print-directory -j2 build tools
	@$(MAKE) --no-print-directory lint test-rust test-cluster test-sdk test-helm

tools: etcd .venv/.ready .tools/sdk/.ready .venv-helm/.ready ## What tests need besides the programs: mostly a wait for the network
	@scripts/helm.sh >/dev/null

test-rust: plugin etcd
	@$(CARGO) test --release --workspace --lib --bins --tests
	@$(CARGO) test --release -p tandem-stablehlo --doc

test-cluster: build etcd .venv/.ready ## Real clients against a real local cluster
	@.venv/bin/python -m pytest -q cli/tests/cluster --ignore cli/tests/cluster/browser

test-browser: build .venv/.ready-browser ## The status page in a Chromium (TANDEM_BROWSER names another); installing one needs root, so `test` leaves this out
	@TANDEM_BROWSER="$$(scripts/browser.sh)" .venv/bin/python -m pytest -q cli/tests/cluster/browser

sdk: .tools/sdk/.ready .venv/.sdk-ready ## Generate the SDKs' messages from the contracts
	@scripts/sdk_generate.sh

test-sdk: build .tools/sdk/.ready .venv/.sdk-ready ## The SDKs of all languages against one table of cases, on a real local cluster
	@scripts/sdk_generate.sh --check
	@scripts/sdk_build.sh
	@$(CARGO) build --release --workspace --example conformance --example generate
	@.venv/bin/python -m pytest -q sdk/conformance

.tools/sdk/.ready .venv/.sdk-ready &: scripts/sdk_tools.sh scripts/toolchains.sh sdk/conformance/requirements.txt sdk/python/pyproject.toml sdk/typescript/package-lock.json sdk/go/go.mod | .venv/.ready
	@scripts/sdk_tools.sh

.venv/.ready: cli/tests/cluster/requirements.txt
	@scripts/venv.sh .venv cli/tests/cluster/requirements.txt

test-helm: build .venv-helm/.ready ## The Helm chart, against schemas and the programs it starts
	@scripts/helm.sh >/dev/null
	@.venv-helm/bin/python -m pytest -q helm/tests --ignore=helm/tests/kubernetes

test-kubernetes: etcd .venv-helm/.ready ## The chart on a real Kubernetes API server, built from source the first time; `test` leaves this out
	@scripts/helm.sh >/dev/null
	@scripts/kubernetes.sh
	@.venv-helm/bin/python -m pytest -q helm/tests/kubernetes

.venv-helm/.ready: helm/tests/requirements.txt
	@scripts/venv.sh .venv-helm helm/tests/requirements.txt

.venv/.ready-browser: cli/tests/cluster/browser/requirements.txt .venv/.ready
	@scripts/venv.sh .venv cli/tests/cluster/browser/requirements.txt
	@touch $@

lint: ## Formatting and lints
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --release --workspace --all-targets -- -D warnings

deny: .tools/bin/cargo-deny ## Licences, bans and sources of every dependency
	@$(CARGO) fetch --locked
	@.tools/bin/cargo-deny --offline check bans licenses sources

audit: .tools/bin/cargo-deny ## Known vulnerabilities of every dependency, by the RustSec database of today
	@.tools/bin/cargo-deny check advisories

.tools/bin/cargo-deny:
	@$(CARGO) install --locked --root .tools cargo-deny@0.20.2

fmt: ## Format
	@$(CARGO) fmt --all

up: build ## A local cluster in the foreground; Ctrl-C stops it
	@target/release/tandem up --model $(MODEL)

bench-kvxfer: ## State transfer beside a raw copy, NIXL and Mooncake, on loopback
	@scripts/bench_kvxfer.sh

bench: build ## Step times beside JAX on this machine, and the router's overhead
	@scripts/bench.sh $(MODEL)

autoscale: build .venv-autoscale/.ready ## KEDA's part played over real workers while the Azure trace plays: docs/autoscaling.md, ten minutes
	@cd cli/tests/cluster && ../../../.venv-autoscale/bin/python -m autoscale

.venv-autoscale/.ready: cli/tests/cluster/autoscale/requirements.txt cli/tests/cluster/requirements.txt
	@scripts/venv.sh .venv-autoscale cli/tests/cluster/autoscale/requirements.txt
