package storekit

import (
	"fmt"
	"strings"

	"github.com/outmill/outmill"
)

// SchemaVersion is the version that a store's schema records. Both numbers are 0 if there
// is no schema.
type SchemaVersion struct {
	// Version is the newest migration that was executed.
	Version int
	// Compatible is the oldest version whose programs may work with the schema.
	Compatible int
}

// Check returns an error if a program whose newest migration is newest cannot use the
// schema: outmill.ErrSchemaMissing, ErrSchemaOutdated or ErrSchemaNewer.
func (v SchemaVersion) Check(newest int) error {
	const remedy = "call store.Ensure(ctx), or run: outmill schema ensure <url>"
	switch {
	case v.Version == 0:
		return fmt.Errorf("%w: %s", outmill.ErrSchemaMissing, remedy)
	case v.Version < newest:
		return fmt.Errorf("%w (it has version %d, this program wants %d): %s", outmill.ErrSchemaOutdated, v.Version, newest, remedy)
	case v.Compatible > newest:
		return fmt.Errorf("%w (it has version %d, which needs a program of version %d or later; this one has version %d): update Outmill",
			outmill.ErrSchemaNewer, v.Version, v.Compatible, newest)
	}
	return nil
}

// ForeignTables is the error of an Ensure that finds no schema of Outmill, but some of the names taken, as by a table of
// another outbox. settings are those that give Outmill's tables another name. It returns nil if no name is taken.
func ForeignTables(kind string, taken []string, settings string) error {
	if len(taken) == 0 {
		return nil
	}
	return fmt.Errorf("%w: the %s %s exists, and Outmill's schema does not: choose another name for Outmill's with %s, or rename the other's",
		outmill.ErrSchemaForeign, kind, strings.Join(taken, ", "), settings)
}

// CheckSchemaVersion refuses a version below 0 or above newest. 0 is an empty database. It
// is for the StatementsFrom of stores.
func CheckSchemaVersion(version, newest int) error {
	switch {
	case version < 0:
		return InvalidConfig("StatementsFrom: version is %d: want 0 (an empty database) to %d", version, newest)
	case version > newest:
		return fmt.Errorf("%w (version %d is newer than the version %d of this program): update Outmill", outmill.ErrSchemaNewer, version, newest)
	}
	return nil
}
