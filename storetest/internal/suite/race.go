//go:build race

package suite

// UnderRace: an engine written in Go is ten to twenty times slower under the
// race detector, so sizes that are about size alone are smaller there.
const UnderRace = true
