// Package outmill is a transactional outbox for Watermill.
//
// An application publishes messages through a Watermill Publisher (package publisher)
// inside its own database transaction. If the transaction commits, the messages are
// delivered; if it rolls back, they never existed. Committed records reach Watermill router
// handlers through a Subscriber (package subscriber), or a broker through a Forwarder
// (package forwarder; package kafka is a publisher that batches).
//
// This package holds the vocabulary and the contract: [Record] and its ids, the store roles
// ([Writer], [Queue], [Inspector], [Janitor], [Schema]), the metadata setters
// ([SetKey], [SetDelay], …), [RetryPolicy], the errors a handler may return ([Permanent],
// [RetryAfter], [Snooze]) and [Open], which picks a store by the scheme of a URL. Packages
// such as sqlite implement the contract; package storetest checks each sentence of the
// contract against a store.
//
// # A record's life
//
//	Append ─► pending ──Claim──► leased ──Ack──────► gone (or processed, if the store retains)
//	             ▲                 │
//	             ├──Abandon────────┤  due again after a backoff, attempt counted
//	             ├──Snooze─────────┤  due again when the handler said, not counted
//	             ├──Release────────┤  given back, due at once, not counted
//	             ├──lease expired──┤  claimable again, expiry counted
//	             │                 └──Fail──► dead
//	             └────────────────Requeue──────┘
//
// A pending record whose expiry has passed goes dead without being delivered. Delivery is
// at least once: if a worker dies after its work and before its ack, another worker gets
// the record when the lease ends.
package outmill
