package storekit

import (
	"fmt"

	"github.com/outmill/outmill"
)

// CheckSchemaVersion refuses a version that no schema has up to the newest one. 0 is an
// empty database. It is for the StatementsFrom of stores.
func CheckSchemaVersion(version, newest int) error {
	switch {
	case version < 0:
		return fmt.Errorf("%w: StatementsFrom: version is %d: want 0 (an empty database) to %d", outmill.ErrInvalidConfig, version, newest)
	case version > newest:
		return fmt.Errorf("%w (version %d was asked for, this program knows %d): update Outmill", outmill.ErrSchemaNewer, version, newest)
	}
	return nil
}
