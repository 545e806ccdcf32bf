//go:build !race

package postgres_test

const underRace = false
