// Package worker is the common part of subscriber and forwarder. It claims records in
// batches ahead of their use, extends their leases, keeps the order of keys, collects
// outcomes into few statements, and releases the remaining records when it stops.
//
// A Worker runs three goroutines between Start and Close: one claims, one extends leases,
// one settles. The user takes items and settles each of them once.
//
//	claim ──► items (bounded by count and bytes) ──► Take ──► user
//	                                                           │
//	store ◄── settle, gathered ◄── Ack/Abandon/Fail/Release/Snooze
package worker
