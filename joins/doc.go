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
// choose the join's id yourself. See [roles.Joins] for the other rules, and for the
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
//
// # Steps in other stores
//
// [SendSteps] makes messages for other stores steps of a join, and [AddRemoteHandlers] adds the
// handlers that they need. The store of the join is the home of such a step. The protocol:
//
//  1. SendSteps appends a record on [RemoteTopic] in the home. It is the step.
//  2. Its handler writes three things in one transaction of the other store: the message, a
//     local join that waits for the message alone, and a record on [OutcomeTopic] that waits for
//     the local join. The id of the local join is that of the step, so they exist once. The
//     handler then snoozes its record until the step is settled.
//  3. The ack or the death of the message decides the local join, which makes the record on
//     OutcomeTopic due. Its handler reports the step in the home (Joins.ReportCompleted or
//     ReportFailed), which counts once, and only then ends the local join.
//
// Each arrow between the two stores is a record that stays until the other side has committed. So
// a crash repeats a step of the protocol, and repeating one has no effect. A store keeps a join until it
// has ended, so the local join is there until the home has counted its step. If it is not
// there and the step is not settled, the message was not sent (or its store was restored from
// an older backup), and the handler sends it.
//
// The home trusts no outcome: the handler of OutcomeTopic compares the store that the outcome
// came from with the record on RemoteTopic, and the local join with its home. The handler of
// RemoteTopic also asks the other store itself, so a step is counted even if the record on
// OutcomeTopic was deleted.
//
// Both stores need a subscriber with these handlers, which must not use outmill.OrderTopic, and
// the home that of AddHandlers.
package joins
