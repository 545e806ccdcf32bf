package engine

import (
	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// bare returns a settlement for each lease, with all other fields empty.
func bare(leases []outmill.Lease) []outmill.Settlement {
	list := make([]outmill.Settlement, len(leases))
	for i, l := range leases {
		list[i].Lease = l
	}
	return list
}

// forAbandon returns the settlements with only the fields that Abandon reads: delays,
// raised to at least 0, and errors that every engine can store.
func forAbandon(list []outmill.Settlement) []outmill.Settlement {
	return eachOf(list, func(z outmill.Settlement) outmill.Settlement {
		return outmill.Settlement{Lease: z.Lease, Delay: max(z.Delay, 0), Err: storekit.CleanError(z.Err)}
	})
}

// forSnooze returns the settlements with only the field that Snooze reads: delays, raised
// to at least 0.
func forSnooze(list []outmill.Settlement) []outmill.Settlement {
	return eachOf(list, func(z outmill.Settlement) outmill.Settlement {
		return outmill.Settlement{Lease: z.Lease, Delay: max(z.Delay, 0)}
	})
}

// forFail returns the settlements with only the fields that Fail reads: errors that every
// engine can store, and Park.
func forFail(list []outmill.Settlement) []outmill.Settlement {
	return eachOf(list, func(z outmill.Settlement) outmill.Settlement {
		return outmill.Settlement{Lease: z.Lease, Err: storekit.CleanError(z.Err), Park: z.Park, Unhandled: z.Unhandled}
	})
}

func eachOf(list []outmill.Settlement, part func(outmill.Settlement) outmill.Settlement) []outmill.Settlement {
	parts := make([]outmill.Settlement, len(list))
	for i, z := range list {
		parts[i] = part(z)
	}
	return parts
}

// someAtOnce reports whether a record of the settlements is due again at once, so that
// readers must be woken.
func someAtOnce(list []outmill.Settlement) bool {
	for _, z := range list {
		if z.Delay <= 0 {
			return true
		}
	}
	return false
}
