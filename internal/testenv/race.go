//go:build race

package testenv

// UnderRace says that the race detector is on. Code that was translated from C, and work of the processor alone, takes some ten
// times as long under it, and a large payload more memory than a machine has.
const UnderRace = true
