#!/bin/sh
# Writes the Go code of a .proto file, named from the proto directory: generate.sh bettercompute/driver/v1/driver.proto
# It needs protoc (Debian: protobuf-compiler); the two plugins are built from pinned versions.
set -eu
cd "$(dirname "$0")"
command -v protoc >/dev/null || { echo 'protoc is missing; as root: apt-get install protobuf-compiler' >&2; exit 1; }
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
GOBIN=$bin GOFLAGS= go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GOBIN=$bin GOFLAGS= go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
PATH=$bin:$PATH protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative "$@"
