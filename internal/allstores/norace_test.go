//go:build !race

package allstores

const underRace = false
