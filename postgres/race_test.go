//go:build race

package postgres_test

// underRace: the race detector multiplies the memory of large payloads.
const underRace = true
