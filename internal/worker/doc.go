// Package worker is what a subscriber and a forwarder share: it claims records
// in batches ahead of their use, keeps their leases alive, keeps the order of
// keys, gathers what became of them into few statements, and gives back what
// it still holds when it stops.
//
// A Worker runs three goroutines between Start and Close: one claims, one
// extends leases, one settles. Its user takes items and settles each of them
// once.
//
//	claim ──► items (bounded by count and bytes) ──► Take ──► user
//	                                                           │
//	store ◄── settle, gathered ◄── Ack/Abandon/Fail/Release/Snooze
package worker
