package storekit

import "github.com/outmill/outmill"

// LeasedInOrder selects the records that an ordered claim may return, if it could lease
// only some of the n records that it chose, because other sessions have changed the rest
// since the read. Behind a record that was not leased, no later record of its key may be
// returned; with OrderTopic, no later record of the topic. Records without a key are behind
// no other record.
func LeasedInOrder(order outmill.Order, n int, key func(i int) string, leased func(i int) bool) []bool {
	keep := make([]bool, n)
	broken := map[string]bool{}
	for i := range n {
		of := key(i)
		whole := order == outmill.OrderTopic
		if whole {
			of = ""
		}
		keep[i] = leased(i) && !broken[of]
		if !leased(i) && (whole || of != "") {
			broken[of] = true
		}
	}
	return keep
}
