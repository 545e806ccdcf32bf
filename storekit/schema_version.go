package storekit

import (
	"fmt"

	"github.com/outmill/outmill"
)

// SchemaVersion is what a store's schema says of itself. Both are 0 where there is no
// schema.
type SchemaVersion struct {
	// Version is the newest migration that was carried out.
	Version int
	// Compatible is the oldest version whose programs may work with the schema.
	Compatible int
}

// Check returns what is wrong with the schema for a program whose newest migration is
// newest: outmill.ErrSchemaMissing, ErrSchemaOutdated or ErrSchemaNewer.
func (v SchemaVersion) Check(newest int) error {
	const remedy = "call store.Ensure(ctx), or run: go run github.com/outmill/outmill/cmd/outmill schema -ensure <url>"
	switch {
	case v.Version == 0:
		return fmt.Errorf("%w: %s", outmill.ErrSchemaMissing, remedy)
	case v.Version < newest:
		return fmt.Errorf("%w (it has version %d, this program wants %d): %s", outmill.ErrSchemaOutdated, v.Version, newest, remedy)
	case v.Compatible > newest:
		return fmt.Errorf("%w (it has version %d, and programs need version %d at least, this one has %d): update Outmill",
			outmill.ErrSchemaNewer, v.Version, v.Compatible, newest)
	}
	return nil
}

// CompatibleWith returns the oldest version whose programs may work with a schema of the
// version. oldest has that for each version that older programs cannot work with; other
// versions change nothing for them.
func CompatibleWith(version int, oldest map[int]int) int {
	for v := version; ; v-- {
		if found, ok := oldest[v]; ok || v <= 1 {
			return max(found, 1)
		}
	}
}

// CheckSchemaVersion refuses a version that no schema has up to the newest one. 0 is an
// empty database. It is for the StatementsFrom of stores.
func CheckSchemaVersion(version, newest int) error {
	switch {
	case version < 0:
		return InvalidConfig("StatementsFrom: version is %d: want 0 (an empty database) to %d", version, newest)
	case version > newest:
		return fmt.Errorf("%w (version %d was asked for, this program knows %d): update Outmill", outmill.ErrSchemaNewer, version, newest)
	}
	return nil
}
