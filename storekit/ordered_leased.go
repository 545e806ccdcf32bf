package storekit

import "github.com/outmill/outmill"

// LeasedInOrder tells which of n records that an ordered claim chose, in their order, it
// may hand out where it has leased only some, because others have changed the rest since
// they were read. Behind a record that was not leased no other of its key may be handed out, and
// of a topic in order none at all. Records without a key are behind nothing.
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
