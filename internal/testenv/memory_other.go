//go:build !linux

package testenv

// Memory is known on Linux only.
func Memory() string { return "" }
