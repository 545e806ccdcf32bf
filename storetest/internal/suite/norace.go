//go:build !race

package suite

const UnderRace = false
