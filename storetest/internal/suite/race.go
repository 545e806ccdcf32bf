//go:build race

package suite

// UnderRace reports whether the race detector is on. It makes an engine written in Go ten to
// twenty times slower, so tests of large amounts use smaller ones.
const UnderRace = true
