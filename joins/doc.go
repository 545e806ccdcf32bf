// Package joins is fan-in for Watermill routers: a join waits for a number of messages, its
// steps, and publishes one message when they have been handled.
//
//	id, err := joins.Start(ctx, store, joins.Join{GroupingKey: customer, ExpectedSteps: 3})
//	for _, topic := range []string{"extract.customers", "extract.orders", "extract.products"} {
//		msg := message.NewMessage(watermill.NewUUID(), payload)
//		joins.AddStep(msg, id)
//		err = pub.WithContext(ctx).Publish(topic, msg)
//	}
//	err = joins.Wait(ctx, pub, joins.WaitRequest{
//		Join:                id,
//		FailIfAnyStepFailed: true,
//		OnComplete:          joins.Next{Topic: "etl.transform", Message: transform},
//	})
//
// Start, Publish and Wait take part in the transaction that ctx carries (the store's WithTx
// or InTx): a join whose transaction rolls back never existed. They may also use separate
// transactions, in this order. None of them holds a lock that delays the handling of steps.
//
// # Steps
//
// The handlers of steps need no code for joins. The store counts a step in the transaction
// in which its message is acked or goes dead; retries before that do not count. If several
// groups read the topic, the step is completed when all of them have acked; a forwarder
// acks when the broker has. A step cannot have a dedup key: if a job may be started twice,
// choose the join's id yourself. See [storekit.Joins] for the other rules, and for the
// store's methods: attaching later, reporting, sealing, cancelling, listing.
//
// # The end
//
// Wait publishes a message on [Topic]. The handler that [AddHandlers] adds to a router ends
// the join when it is decided, and publishes OnComplete or OnFail in the same transaction.
// It does so once, even with several routers. Until then the handler snoozes the message,
// so no attempt counts; the step that decides the join makes the message due at once.
// Without a Wait the store counts the steps of a join, but the join never ends.
//
// The published message has the join in its metadata: [MetadataJoinID] and the others. It
// may be a step of another join, around this one. If that join has ended by then, the
// message is published nevertheless:
//
//	joins.AddStep(transform, outer)
package joins
