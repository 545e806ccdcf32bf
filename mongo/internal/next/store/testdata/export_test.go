package mongo

import (
	driver "github.com/outmill/outmill/mongo/internal/next"
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

// Listens reports whether the store's change stream is open.
func Listens(s *Store) bool {
	_, open := s.driver.Heard()
	return open
}
