//go:build !race

package suite

// UnderRace: see race.go.
const UnderRace = false
