//go:build !race

package testenv

// UnderRace says that the race detector is on.
const UnderRace = false
