// Package driver is the contract that authors of drivers implement.
//
// A driver does hardware jobs for machines. Each job is a kind: power, management, boot, deploy, inspect,
// virtual-media, console, bios, raid, firmware, runtime, or one a package adds with RegisterKind. A Definition says what
// a driver is called, where it runs, what configuration it takes and which kinds it implements; Define checks it and
// returns a Driver that never changes.
//
// Each kind is a Go interface in a file of its own name (power.go, management.go, ...), where the operations' arguments
// and results are stated as JSON with their value sets. Operations outside the interface of a kind are optional: the
// implementation has them when it satisfies the second interface of that file.
//
// Operations are called through Driver.Invoke with JSON arguments, whether the driver lives in this process or in a
// plugin. Arguments come as the positional array of the kind's parameters; an object with the parameters' names is
// accepted too. A result of {}, null or nothing means done.
//
// Failures are Errors: a kebab-case code, a sentence for people, and whether the same call may work later. Retryable is a
// remark, not a permission: the caller repeats an operation only when the driver also lists it as retry-safe.
package driver
