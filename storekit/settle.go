package storekit

import "github.com/outmill/outmill"

// Bare are settlements that say nothing but which leases they are for.
func Bare(leases []outmill.Lease) []outmill.Settlement {
	list := make([]outmill.Settlement, len(leases))
	for i, l := range leases {
		list[i].Lease = l
	}
	return list
}

// LeasesOf are the leases of the settlements.
func LeasesOf(list []outmill.Settlement) []outmill.Lease {
	leases := make([]outmill.Lease, len(list))
	for i := range list {
		leases[i] = list[i].Lease
	}
	return leases
}

// ForAbandon returns the parts of the settlements that Abandon acts on: delays of 0 or
// more, and errors that every engine can store.
func ForAbandon(list []outmill.Settlement) []outmill.Settlement {
	return each(list, func(z outmill.Settlement) outmill.Settlement {
		return outmill.Settlement{Lease: z.Lease, Delay: max(z.Delay, 0), Err: CleanError(z.Err)}
	})
}

// ForSnooze returns the parts that Snooze acts on: delays of 0 or more.
func ForSnooze(list []outmill.Settlement) []outmill.Settlement {
	return each(list, func(z outmill.Settlement) outmill.Settlement {
		return outmill.Settlement{Lease: z.Lease, Delay: max(z.Delay, 0)}
	})
}

// ForFail returns the parts that Fail acts on: errors that every engine can store, and
// which records take the later ones of their key along.
func ForFail(list []outmill.Settlement) []outmill.Settlement {
	return each(list, func(z outmill.Settlement) outmill.Settlement {
		return outmill.Settlement{Lease: z.Lease, Err: CleanError(z.Err), Park: z.Park}
	})
}

func each(list []outmill.Settlement, part func(outmill.Settlement) outmill.Settlement) []outmill.Settlement {
	parts := make([]outmill.Settlement, len(list))
	for i, z := range list {
		parts[i] = part(z)
	}
	return parts
}

// SomeAtOnce tells whether a record of the settlements is due again at once, so that
// readers are to be woken.
func SomeAtOnce(list []outmill.Settlement) bool {
	for _, z := range list {
		if z.Delay <= 0 {
			return true
		}
	}
	return false
}
