// Package joins is fan-in for Watermill routers: a join waits for a number of
// messages, its steps, and publishes one message when they are done.
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
// Start, Publish and Wait take part in the transaction that ctx carries (the
// store's WithTx or InTx): a join whose transaction rolls back never existed.
// They may as well be in several, in this order. None of them holds a lock that
// the handling of steps has to wait for.
//
// # Steps
//
// The handlers of steps know nothing of joins. The store counts a step in the
// transaction in which its message is acked, or goes dead: retries in between
// do not count. Where several groups read the topic, the step is completed when
// all of them have acked; a forwarder acks when the broker has. A step cannot
// have a dedup key: where a job may be started twice, choose the join's id. See
// [storekit.Joins] for the rest, and for the store's own methods: attaching
// later, reporting, sealing, cancelling, listing.
//
// # The end
//
// Wait publishes a message on [Topic]. The handler that [AddHandlers] adds to a
// router ends the join when it is decided, and publishes OnComplete or OnFail in
// the same transaction, once, however many routers there are. Until then the
// message is snoozed, which counts no attempt; the step that decides the join
// makes it due at once. A join that nobody waits for is counted, but never ends.
//
// What is published has the join in its metadata: [MetadataJoinID] and the
// others. It may be a step of another join, around this one (where that has
// ended by then, it is published all the same):
//
//	joins.AddStep(transform, outer)
package joins
