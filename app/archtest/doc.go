// Package archtest holds the tests of the house itself: which room may import which, that every package says what it is
// for, and what each binary links.
package archtest
