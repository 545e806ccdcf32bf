package main

import (
	"fmt"

	"github.com/outmill/outmill/storekit"
)

// mostCounted limits each number of the question before a drop.
const mostCounted = 10_000

// dropQuestion says how many records the drop of a group gives back and deletes.
func dropQuestion(group, shown string, f storekit.DropForecast) string {
	least := ""
	if f.AtLeast {
		least = "at least "
	}
	return fmt.Sprintf("This drops the group %q of %s. Of its records it gives back %s%d to the first group that registers for their "+
		"topic, and deletes %s%d: %d not delivered but of topics that another group reads, %d dead, %d processed.",
		group, shown, least, f.GivenBack, least, f.Deleted(), f.Read, f.Dead, f.Processed)
}
