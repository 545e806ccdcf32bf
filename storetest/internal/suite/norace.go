//go:build !race

package suite

// UnderRace reports whether the race detector is on.
const UnderRace = false
