package storekit

import "github.com/outmill/outmill"

// RequireTx returns the transaction that a store has found in a context, or ErrNoTx if
// there is none.
func RequireTx[T comparable](tx T, err error) (T, error) {
	var none T
	if err == nil && tx == none {
		err = outmill.ErrNoTx
	}
	return tx, err
}

// Distinct returns the leases, each once.
func Distinct(leases []outmill.Lease) []outmill.Lease {
	seen := make(map[outmill.Lease]bool, len(leases))
	list := make([]outmill.Lease, 0, len(leases))
	for _, l := range leases {
		if !seen[l] {
			seen[l] = true
			list = append(list, l)
		}
	}
	return list
}
