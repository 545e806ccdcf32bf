// Package mongo is the store on MongoDB 5.0 and later, with the driver
// go.mongodb.org/mongo-driver/v2. It needs a replica set, of which one of a
// single node is enough. Its collections must not be sharded.
//
//	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:27017/?replicaSet=rs0"))
//	store, err := outmillmongo.New(client, outmillmongo.Config{Database: "orders"}, logger)
//	err = store.Ensure(ctx)
//
// docs/mongodb.md explains where the store runs and where it does not (Amazon DocumentDB, Azure
// Cosmos DB), which rights it needs, what it costs the server, and what happens when the primary
// steps down. On a sharded cluster, a record's times are those of the mongos's clock.
//
// # Transactions
//
// A session in the context makes Append part of the session's transaction:
//
//	session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
//		if _, err := orders.InsertOne(ctx, order); err != nil {
//			return nil, err
//		}
//		return nil, pub.WithContext(ctx).Publish("orders", msg)
//	})
//
// The driver calls such a callback again if the transaction failed for a reason that passes; the
// records of an aborted transaction are gone. Let transactions commit with write concern
// majority, MongoDB's default. A commit with less can be lost with the primary, together with the
// user's own documents. Without a session, Append runs a transaction of its own. StartJoin,
// PutNote, HasNote and the calls on one saga also take part in the session's
// transaction. All other methods ignore the session.
//
// # Documents
//
// The collection records (outmill_records) has one document for each message and group: grp (empty: no
// group has registered for the topic yet), topic, key, stage, which says where the record stands, times in
// microseconds, counters, and content, a document of its own with the message's id, its metadata as JSON and its
// payload. Empty fields are absent. The payload is binary, and absent if it is nil. With Config.EmbedJSON, a payload
// that is a JSON object is a document, and payload_escaped says how its JSON was written. docs/mongodb.md
// describes all collections.
//
// The server fills the field seq when it inserts a document; seq is the order of
// the appends. Neither seq nor due times, leases and expiry depend on the clocks
// of clients: they use the primary's clock. If the primary's clock is set back,
// or a primary with a later clock is succeeded by one with an earlier clock,
// these times come later by the difference.
//
// A document, with all its fields, has at most 16 MiB less 64 KiB, where metadata counts twice. The rest is
// room for fields that are set later. A larger document is refused before anything
// is written.
//
// # Claims and settling
//
// A claim leases a batch with one update for each document. The number of round trips depends neither on
// the number of records nor on that of topics: 2 without an order, and 5 to 8 in order. An ack is one delete for
// each document. If a connection breaks in the middle of it, some leases may be settled and others not. A repeated
// call settles the rest.
//
// Claims in order lock the topic of a group, across processes. A process that stops while it has the lock
// blocks the topic until the server ends its transaction, after 60 s at most.
//
// # Retention
//
// A janitor deletes processed records when Config.Retain has passed, joins, and what an operator did. The server itself
// deletes dedup keys, and notes of messages from elsewhere, when their time has come.
//
// # Tested on
//
// The project's own tests run on MongoDB 6.0, on a replica set of one node, unless
// OUTMILL_TEST_MONGODB_URL names another server.
package mongo
