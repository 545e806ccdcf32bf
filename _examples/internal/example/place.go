package example

import (
	"strings"
	"time"

	"github.com/outmill/outmill"
)

// leaveWithin bounds how long the removal of a place may take.
const leaveWithin = 15 * time.Second

// UniqueName is a name for a schema or a database that no other run has.
func UniqueName() string {
	return "outmill_example_" + strings.ReplaceAll(outmill.NewWorkItemID().String(), "-", "")
}
