// Package views holds the pages of the console as templ components. They show what they are given: nothing here asks the
// store or decides what may be done, beyond hiding what the reader may not do.
package views

//go:generate go run github.com/a-h/templ/cmd/templ@v0.3.1118 generate -path .
