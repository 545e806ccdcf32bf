//go:build race

package allstores

// underRace reduces the messages of Watermill's suite, because SQLite in Go is about thirty
// times slower under the race detector.
const underRace = true
