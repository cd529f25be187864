# Every target does its own set-up: on a fresh machine only Go and Python are needed, and Node for one
# of the object stores that tests start.
# Tools go to .tools, the Python environment to .venv, both left out of git; a second run finds them ready.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

GO ?= go
ROOT := $(CURDIR)
TOOLS := $(ROOT)/.tools
VENV := $(ROOT)/.venv
BUILD := $(ROOT)/.build

# The Go tests run Python clients with this interpreter.
export HEADRACE_PYTHON := $(VENV)/bin/python
# Real object stores that the tests start and stop, each on a loopback port of its own.
STORES := $(TOOLS)/stores
export HEADRACE_STORES := $(STORES)

.PHONY: help build demo test quick lint fmt vuln bench tools stores venv clean

help:
	@printf '%s\n' \
	  'make demo    serve a small data set, read it, kill the gateway in mid-stream, go on' \
	  'make test    everything a change must pass: lint, race detector, Python, end to end' \
	  'make quick   the same tests without the race detector and the long ones' \
	  'make lint    linters of both languages and known vulnerabilities' \
	  'make fmt     format Go and Python' \
	  'make bench   measure against the alternatives (minutes, on a quiet machine)' \
	  'make build   the binary, ./headrace'

build:
	$(GO) build -trimpath -o $(ROOT)/headrace ./cmd/headrace

demo: build $(BUILD)/client/ready
	HEADRACE_PYTHON=$(BUILD)/client/bin/python ./headrace demo --dir .build/demo

# The layout comes first because it is the cheapest to fail; the runners' own summaries come last.
test: lint venv stores $(TOOLS)/gotestsum@v1.13.0
	$(GO) test -count=1 ./e2e/layout
	$(HEADRACE_PYTHON) -m pytest -q python
	$(TOOLS)/gotestsum --format pkgname-and-test-fails -- -race -count=1 -timeout 30m ./...

quick: venv stores $(TOOLS)/gotestsum@v1.13.0
	$(HEADRACE_PYTHON) -m pytest -q python
	$(TOOLS)/gotestsum --format pkgname-and-test-fails -- -short -count=1 -timeout 10m ./...

# Vet runs here on what the linter does not see: the build that records who took each lease, and all of the code and its
# tests as they are on macOS.
lint: venv $(TOOLS)/golangci-lint@v2.15.0 $(TOOLS)/gofumpt@v0.12.0
	@unformatted=$$($(TOOLS)/gofumpt -l .); \
	  if [[ -n $$unformatted ]]; then printf 'run make fmt:\n%s\n' "$$unformatted"; exit 1; fi
	$(GO) vet -tags leases ./...
	GOOS=darwin $(GO) vet ./...
	$(TOOLS)/golangci-lint run ./...
	$(HEADRACE_PYTHON) -m ruff format --config python/pyproject.toml --check .
	$(HEADRACE_PYTHON) -m ruff check --config python/pyproject.toml .
	$(HEADRACE_PYTHON) -m mypy --config-file python/pyproject.toml python/src python/tests python/examples .ci/vuln.py sampler/testdata/derive.py
	@$(MAKE) vuln

fmt: venv $(TOOLS)/gofumpt@v0.12.0
	$(TOOLS)/gofumpt -w .
	$(HEADRACE_PYTHON) -m ruff format --config python/pyproject.toml .
	$(HEADRACE_PYTHON) -m ruff check --config python/pyproject.toml --fix .

# Known vulnerabilities that our code reaches, from a database pinned like any other module, so that the answer does not
# depend on the day or the network. Those of the installed Go toolchain are told but do not fail a change: no commit mends them.
VULNDB := v0.0.0-20261105234957-e22db6528018

vuln: venv $(TOOLS)/govulncheck@v1.9.0 $(BUILD)/vulndb@$(VULNDB)
	$(TOOLS)/govulncheck -format json -db file://$(BUILD)/vulndb@$(VULNDB) ./... | $(HEADRACE_PYTHON) .ci/vuln.py

$(BUILD)/vulndb@%:
	rm -rf $@
	cd / && records=$$($(GO) mod download -json golang.org/x/vulndb@$* | sed -n 's/.*"Dir": "\(.*\)".*/\1/p') && \
	  $(GO) run golang.org/x/vulndb/cmd/indexdb@$* -vulns "$$records/data/osv" -out $@

bench: build venv stores
	$(GO) run ./bench

tools: $(TOOLS)/golangci-lint@v2.15.0 $(TOOLS)/gofumpt@v0.12.0 $(TOOLS)/govulncheck@v1.9.0 $(TOOLS)/gotestsum@v1.13.0

# A tool's stamp carries its version: change the version where the stamp is named and the tool is installed again.
install = GOBIN=$(TOOLS) $(GO) install $(1)@$* && touch $@

$(TOOLS)/golangci-lint@%:
	$(call install,github.com/golangci/golangci-lint/v2/cmd/golangci-lint)

$(TOOLS)/gofumpt@%:
	$(call install,mvdan.cc/gofumpt)

$(TOOLS)/govulncheck@%:
	$(call install,golang.org/x/vuln/cmd/govulncheck)

$(TOOLS)/gotestsum@%:
	$(call install,gotest.tools/gotestsum)

stores: $(STORES)/versitygw@v1.8.0 $(STORES)/fake-gcs-server@v1.56.1 $(STORES)/toxiproxy@v2.12.0 $(STORES)/azurite@3.37.0

store = GOBIN=$(STORES) $(GO) install $(1)@$* && touch $@

$(STORES)/versitygw@%:
	$(call store,github.com/versity/versitygw/cmd/versitygw)

$(STORES)/fake-gcs-server@%:
	$(call store,github.com/fsouza/fake-gcs-server)

# The command is named server in its module.
$(STORES)/toxiproxy@%:
	$(call store,github.com/Shopify/toxiproxy/v2/cmd/server) && mv $(STORES)/server $(STORES)/toxiproxy

# No scripts of packages are run: all of it is plain JavaScript. Without Node, the tests of Azure say that they are left out.
$(STORES)/azurite@%:
	@mkdir -p $(STORES)
	@command -v npm >/dev/null || { echo 'npm is missing: Azure Blob Storage is not tested'; exit 0; }; \
	  set -x; npm install --prefix $(STORES)/npm --no-save --no-audit --no-fund --ignore-scripts --loglevel=error azurite@$* && \
	  ln -sf npm/node_modules/.bin/azurite-blob $(STORES)/azurite-blob && touch $@

venv: $(VENV)/ready

# The package itself is installed from the tree, in place: what a test imports is what is being edited.
$(VENV)/ready: python/requirements-dev.txt python/pyproject.toml
	[[ -x $(HEADRACE_PYTHON) ]] || python3 -m venv $(VENV)
	$(HEADRACE_PYTHON) -m pip install -q --disable-pip-version-check --require-hashes -r python/requirements-dev.txt
	$(HEADRACE_PYTHON) -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e python
	touch $@

# What the demo needs is a client's: no tools, and not PyTorch, which has gigabytes.
$(BUILD)/client/ready: python/requirements-dev.txt python/pyproject.toml
	python3 -m venv $(@D)
	awk '/^[a-z]/ {keep = /^(pyarrow|numpy|flit-core)==/} keep' $< > $(@D)/requirements.txt
	$(@D)/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r $(@D)/requirements.txt
	$(@D)/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e python
	touch $@

clean:
	rm -rf $(TOOLS) $(VENV) $(BUILD) $(ROOT)/headrace
