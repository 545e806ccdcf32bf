//go:build race

package allstores

// underRace: SQLite in Go is some thirty times slower under the race detector,
// so Watermill's suite runs with fewer messages.
const underRace = true
