//go:build race

package sqlite_test

// underRace: SQLite in Go is some thirty times slower under the race detector.
const underRace = true
