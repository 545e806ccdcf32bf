//go:build !linux

package testenv

// memory is known on Linux only.
func memory() string { return "" }
