//go:build !race

package subscriber_test

const underRace = false
