package storekit

import "github.com/outmill/outmill"

// Bare returns a settlement for each lease, with all other fields empty.
func Bare(leases []outmill.Lease) []outmill.Settlement {
	list := make([]outmill.Settlement, len(leases))
	for i, l := range leases {
		list[i].Lease = l
	}
	return list
}

// LeasesOf returns the leases of the settlements.
func LeasesOf(list []outmill.Settlement) []outmill.Lease {
	leases := make([]outmill.Lease, len(list))
	for i := range list {
		leases[i] = list[i].Lease
	}
	return leases
}

// ForAbandon returns the settlements with only the fields that Abandon reads: delays,
// raised to at least 0, and errors that every engine can store.
func ForAbandon(list []outmill.Settlement) []outmill.Settlement {
	return each(list, func(z outmill.Settlement) outmill.Settlement {
		return outmill.Settlement{Lease: z.Lease, Delay: max(z.Delay, 0), Err: CleanError(z.Err)}
	})
}

// ForSnooze returns the settlements with only the field that Snooze reads: delays, raised
// to at least 0.
func ForSnooze(list []outmill.Settlement) []outmill.Settlement {
	return each(list, func(z outmill.Settlement) outmill.Settlement {
		return outmill.Settlement{Lease: z.Lease, Delay: max(z.Delay, 0)}
	})
}

// ForFail returns the settlements with only the fields that Fail reads: errors that every
// engine can store, and Park.
func ForFail(list []outmill.Settlement) []outmill.Settlement {
	return each(list, func(z outmill.Settlement) outmill.Settlement {
		return outmill.Settlement{Lease: z.Lease, Err: CleanError(z.Err), Park: z.Park, Unhandled: z.Unhandled}
	})
}

func each(list []outmill.Settlement, part func(outmill.Settlement) outmill.Settlement) []outmill.Settlement {
	parts := make([]outmill.Settlement, len(list))
	for i, z := range list {
		parts[i] = part(z)
	}
	return parts
}

// SomeAtOnce reports whether a record of the settlements is due again at once, so that the
// store must wake readers.
func SomeAtOnce(list []outmill.Settlement) bool {
	for _, z := range list {
		if z.Delay <= 0 {
			return true
		}
	}
	return false
}
