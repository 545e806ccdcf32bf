package example

import (
	"strings"
	"time"

	"github.com/outmill/outmill"
)

// leaveWithin limits the time of the removal of a place.
const leaveWithin = 15 * time.Second

// UniqueName returns a name for a schema or a database that no other run has.
func UniqueName() string {
	return "outmill_example_" + strings.ReplaceAll(outmill.NewWorkItemID().String(), "-", "")
}
