package mongo

import (
	"github.com/outmill/outmill/mongo/internal/driver"
	"github.com/outmill/outmill/storekit"
)

// CollectionNames are the names of the collections of a store without a prefix of its own.
func CollectionNames() []string {
	var names []string
	for _, name := range driver.Collections() {
		names = append(names, DefaultPrefix+name)
	}
	return names
}

// AtOnce returns a Config whose store works in steps of so many records.
func AtOnce(config Config, records int) Config {
	config.atOnce = storekit.BatchSize(records)
	return config
}

// Heard counts what the store's change stream has reported, and each begin and end of a stream.
func Heard(s *Store) uint64 {
	heard, _ := s.driver.Heard()
	return heard
}

// Listens reports whether the store's change stream is open.
func Listens(s *Store) bool {
	_, open := s.driver.Heard()
	return open
}
