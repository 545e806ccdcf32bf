package outmill

// Reading says how a worker reads topics of its group. Workers of a group that read one topic in
// different orders or by different policies lose nothing and handle nothing at the same time, but
// no order is promised while they run: see [Order].
type Reading struct {
	// Topics are the topics that the worker reads in this way.
	Topics Topics `json:"topics"`
	// Order is the order of its claims, and KeyPolicy their policy, which has no effect without an order.
	Order     Order     `json:"order,omitempty"`
	KeyPolicy KeyPolicy `json:"key_policy,omitempty"`
}
