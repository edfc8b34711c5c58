# bcd: see README.md. `make lab` runs the whole job in virtual machines, `make test` proves it.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

export GOFLAGS := -buildvcs=false
VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo dev)
RAMDISK := images/ramdisk/embed/dist

# What each part needs of Debian. Everything is in Debian 12's main.
APT_BUILD := ipxe systemd-boot-efi zstd ca-certificates
APT_IMAGE := mmdebstrap fdisk e2fsprogs mtools dosfstools grub-pc-bin grub-efi-amd64-bin grub-common zstd
APT_LAB   := qemu-system-x86 qemu-utils ovmf iproute2
APT_TEST  := gcc libc6-dev netbase udhcpc isc-dhcp-client isc-dhcp-relay isc-dhcp-server dhcpcd-base dnsmasq-base kea-dhcp4-server kea-admin tftpd-hpa tcpdump atftp tftp-hpa curl nginx-light iputils-ping python3-sushy chromium kmod xz-utils gdisk mount procps xorriso ipmitool openipmi

.PHONY: help setup setup-test build ramdisk image lab test test-guests figures generate check-generated lint fuzz clean

help: ## show this
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

# Installs the packages that are missing. Some bring servers that the tests run themselves, in namespaces of their own: none
# of them is started or enabled on this machine.
define apt
	@missing=; for p in $(1); do dpkg-query -W -f='$${db:Status-Status}' $$p 2>/dev/null | grep -qx installed || missing="$$missing $$p"; done; \
	[ -n "$$missing" ] || exit 0; \
	if [ "$$(id -u)" != 0 ]; then echo "these Debian packages are missing; as root: apt-get install --no-install-recommends$$missing" >&2; exit 1; fi; \
	echo "installing:$$missing"; \
	policy=/usr/sbin/policy-rc.d; \
	if [ ! -e $$policy ]; then trap "rm -f $$policy" EXIT; printf '#!/bin/sh\nexit 101\n' >$$policy; chmod 755 $$policy; fi; \
	units=$$(for p in $$missing; do systemctl -q is-enabled "$${p%-light}" 2>/dev/null || echo "$${p%-light}"; done); \
	apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing </dev/null >/dev/null; \
	for u in $$units; do systemctl -q disable "$$u" 2>/dev/null || :; done
endef

setup: ## install what building and the lab need (as root; else it is named)
	$(call apt,$(APT_BUILD) $(APT_IMAGE) $(APT_LAB))

setup-test: setup ## install what the tests need besides
	$(call apt,$(APT_TEST) $(if $(shell command -v npm),,nodejs npm))
	@$(MAKE) --no-print-directory $(JS_PLUGIN)/node_modules/.package-lock.json || echo 'left out: the plugin in JavaScript, whose packages npm could not fetch'
	@$(MAKE) --no-print-directory $(BROWSERTEST)/node_modules/.package-lock.json || echo 'left out: the search for barriers in the console, whose axe-core npm could not fetch'

JS_PLUGIN := plugins/examples/cooling-js
BROWSERTEST := web/browsertest
$(JS_PLUGIN)/node_modules/.package-lock.json: $(JS_PLUGIN)/package-lock.json
$(BROWSERTEST)/node_modules/.package-lock.json: $(BROWSERTEST)/package-lock.json
%/node_modules/.package-lock.json:
	cd $* && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error

# What the ramdisks are made of: built again only when something of it is newer.
RAMDISK_SOURCES := go.mod $(shell find app/*.go cmd/bcd-ramdisk images/agent images/chunk images/flat images/layout images/ramdisk proto -name '*.go' ! -name '*_test.go') \
	$(shell find images/ramdisk/modules -type f)
$(RAMDISK)/lab/manifest.json: $(RAMDISK_SOURCES) | setup
	go run ./images/ramdisk/mkramdisk -out $(RAMDISK) -work .cache/ramdisk -version $(VERSION)

ramdisk: setup $(RAMDISK)/lab/manifest.json ## build kernel, modules, agent and loaders into the two ramdisks

build: ramdisk ## build the one binary, build/bcd, with its ramdisks inside
	CGO_ENABLED=0 go build -trimpath -tags embedramdisk -ldflags '-s -w -X main.version=$(VERSION)' -o build/bcd ./cmd/bcd
	@ls -l build/bcd | awk '{print "build/bcd:", $$5, "bytes"}'

lab: ## run the main job in virtual machines on an isolated network (as root); AUTO=1 ends after it
	@[ "$$(id -u)" = 0 ] || { echo 'make lab needs root: it makes a network namespace and a Debian image. Try: sudo make lab' >&2; exit 1; }
	@$(MAKE) --no-print-directory build
	build/bcd lab --work .cache/lab $(if $(AUTO),--auto)

# The packages whose tests boot machines: they run after the others, one package at a time, on an idle machine.
GUESTS := ./images/osimage/... ./plugins/sandbox/... ./images/ramdisk/... ./images/agent/... ./netboot/... ./bmc/virtual/... ./images/flat/... ./app/lab/...
# SQLite in Go under the race detector takes minutes for each of its tests; its concurrency is raced through its users.
NORACE := github.com/better-compute/bcd/store

test: setup-test build ## every check and test, with the race detector; end-to-end runs in QEMU where root and /dev/net/tun allow
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "not gofmt'ed: $$out"; exit 1; }
	go vet ./...
	go test -short -race -timeout 30m $$(go list ./... | grep -v '^$(NORACE)$$')
	go test -timeout 20m $(NORACE)
	BCD_PLUGIN_CYCLES=1000 go test -count=1 -run '^TestNothingIsLeftOfKilledPlugins$$' ./plugins/host # half a minute
	@$(MAKE) --no-print-directory fuzz IN=netboot # what anyone on the wire may send
	@if [ "$$(id -u)" = 0 ] && [ -c /dev/net/tun ]; then $(MAKE) --no-print-directory test-guests; \
	else echo 'left out: the end-to-end runs in QEMU, which need root and /dev/net/tun'; fi

test-guests: # the tests that boot machines
	mkdir -p .cache/lab/images .cache/labtest
	ln -sfn ../lab/images .cache/labtest/images # the image that make lab built serves all
	BCD_QEMU=1 BCD_SCREENSHOTS=$(CURDIR)/.cache/screenshots BCD_OSIMAGE_CACHE=$(CURDIR)/.cache/lab/images BCD_LAB_WORK=$(CURDIR)/.cache/labtest BCD_LAB_RAMDISK=$(CURDIR)/$(RAMDISK)/server \
	  go test -count=1 -p 1 -timeout 40m $(GUESTS)

figures: setup-test build ## measure what users wait for, as root: `name value` lines; RUNS=3 ONLY=name,...
	build/bcd lab figures --work .cache/figures --images .cache/lab/images --runs $(or $(RUNS),3) $(if $(ONLY),--only $(ONLY))

generate: ## write generated code anew
	go generate ./...

check-generated: generate ## fail when generated code is not what its sources give
	git diff --exit-code

lint: ## golangci-lint v2
	go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run ./...

# Making a find smaller may take a minute, which large seeds would spend alone: a second is given. A run of Go's fuzzer that
# ends by its own deadline and names no input found nothing.
fuzz: ## each fuzz target for 20 s; IN=netboot: those of one room
	@for d in $$(git grep -l '^func Fuzz' -- '$(or $(IN),.)' | xargs -n1 dirname | sort -u); do \
	  for f in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$d/*_test.go | cut -d' ' -f2); do \
	    if out=$$(go test ./$$d -run '^$$' -fuzz "^$$f\$$" -fuzztime 20s -fuzzminimizetime 1s 2>&1) || \
	      { grep -q 'context deadline exceeded' <<<"$$out" && ! grep -q 'Failing input\|panic' <<<"$$out"; }; \
	    then echo "$$d $$f: $$(grep -o 'execs: [0-9]*' <<<"$$out" | tail -1)"; else echo "$$out"; exit 1; fi; done; done

clean: ## remove what was built
	rm -rf build .cache $(RAMDISK)
