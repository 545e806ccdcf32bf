//go:build !race

package suite

// UnderRace reports whether the race detector is on.
// UnderRace: see race.go.
const UnderRace = false
