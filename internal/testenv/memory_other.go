//go:build !linux

package testenv

// Memory returns "", because only Linux has a known directory in memory.
func Memory() string { return "" }
