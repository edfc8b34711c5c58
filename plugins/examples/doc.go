// Package examples holds two plugins that do the same, one in Go (cooling) and one in JavaScript (cooling-js), and the
// test that runs both through the conformance suite of bcx. README.md is the five-minute tour.
package examples
