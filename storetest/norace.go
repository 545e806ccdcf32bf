//go:build !race

package storetest

const underRace = false
