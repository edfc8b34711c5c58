//go:build !windows

package bcx

const defaultNetwork = "unix"
