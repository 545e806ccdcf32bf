// Package mongo is the store on MongoDB 5.0 and later, by the driver
// go.mongodb.org/mongo-driver/v2: a replica set (one of a single node will do),
// or a standalone server with less. Its collections are not to be sharded.
//
//	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:27017/?replicaSet=rs0"))
//	store, err := outmillmongo.New(client, outmillmongo.Config{Database: "orders"}, logger)
//	err = store.Ensure(ctx)
//
// docs/mongodb.md says where it runs and where it does not (Amazon DocumentDB, Azure
// Cosmos DB), which rights it needs, what it costs the server, what a step-down of the
// primary does, and what holds on a sharded cluster, where a record's times go by the
// clock of the mongos.
//
// # Transactions
//
// The session in a context makes Append part of its transaction:
//
//	session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
//		if _, err := orders.InsertOne(ctx, order); err != nil {
//			return nil, err
//		}
//		return nil, pub.WithContext(ctx).Publish("orders", msg)
//	})
//
// The driver calls such a callback again where the transaction failed for a
// reason that passes; what an aborted one appended is gone. Let transactions
// commit with write concern majority, MongoDB's default: what is committed with
// less can be lost with the primary, as can the user's own documents. Without a
// session Append runs a transaction of its own, and all other methods take no
// notice of a session.
//
// # Documents
//
// The collection records (outmill_records) has one document for each message
// and group: grp (empty: no group has registered for the topic yet), topic, key,
// status (pending, leased, processed, dead), stage, which says more closely where
// the record stands, times, counters, metadata and payload. Fields that are
// empty are left out. The payload is binary, or with Config.EmbedJSON a document
// where it is a JSON object; payload_escaped then says how it was written. Times have milliseconds. The field seq is filled by the
// server as it inserts, and is the order of the appends; it does not depend on
// the clocks of clients, nor do due times, leases and expiry, which go by the
// primary's clock. A primary whose clock is set back, or is followed by one whose
// clock is behind, makes these times come later by as much.
//
// A document, with all its fields, has at most 16 MiB less 64 KiB, which are kept
// for what is noted later. A larger one is refused before anything is written.
//
// # Claims and settling
//
// A claim leases a batch with an update of each document. How many round trips it
// makes does not depend on how many records it takes, but on how many topics it
// takes them from: 2 to 4 for one, in order 5 or 6, and up to 14 where keys are
// held. Settling is an update, or a delete, of each document too: where a
// connection breaks in the middle of a call, some leases may be settled and
// others not. To repeat the call settles the rest.
//
// Without an order, a claim goes on behind the one before it while there is plenty in
// line. It looks at the head of the line, and at what came back or was delayed, at least
// once a second, or every few seconds where several processes read the topic.
//
// Claims in order take turns at a topic of a group, across processes. A claim that does
// not get its turn within some 40 ms returns nothing. A process that dies in its turn
// holds up the topic for 2 seconds, or for as long as its claims have taken lately
// where that is longer.
//
// # Retention
//
// An ack with Config.Retain notes in the record when it is to be deleted (delete_at,
// by the server's clock): a janitor does that, or the server by an index with a time
// to live. So a changed Retain counts for what is acked from then on, without Ensure.
// To have what was acked before deleted earlier or later, update delete_at.
//
// # Without transactions
//
// With Config.WithoutTransactions, for a standalone server: Append of several
// documents is not atomic (what was written before an error is removed again as
// well as can be), a record that is appended while a group registers for the
// first time may not reach it, dedup keys, joins and ordered claims are refused, and
// there is no change stream, so readers poll.
//
// # Tested on
//
// The project's own tests run on MongoDB 6.0, a replica set of one node, unless
// OUTMILL_TEST_MONGODB_URL names another one.
package mongo
