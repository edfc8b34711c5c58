package main

import (
	"github.com/better-compute/bcd/app/site"
	"github.com/better-compute/bcd/bmc/ipmi"
	"github.com/better-compute/bcd/plugins/bcx"
	"github.com/better-compute/bcd/plugins/host"
	"github.com/better-compute/bcd/plugins/sandbox"
)

// ipmiCommand is the hidden first argument that makes this executable the plugin bcx-ipmi.
const ipmiCommand = "__bcx-ipmi"

// builtins are the plugins this executable can be.
var builtins = map[string]host.Bundled{site.Builtin: {Name: "bcx-ipmi", Args: []string{ipmiCommand}}}

// hidden runs what this program starts of itself, before anything else is done, and gives its exit code. ok is false for
// every other command line. Arguments decide, never the environment.
func hidden(args []string) (code int, ok bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch args[0] {
	case sandbox.ShimCommand:
		return sandbox.RunShim(args[1:]), true
	case ipmiCommand:
		d := ipmi.New(ipmi.Config{})
		bcx.Main(bcx.Options{PluginVersion: version, Health: d.Health}, d.Definition())
	}
	return 0, false
}
