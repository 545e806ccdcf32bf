package main

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	outmillmongo "github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/publisher"
)

func mongoOpener(ctx context.Context, b *bench) (opener, error) {
	db, err := b.mongoDatabase(ctx, "stores")
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (outmill.Store, error) {
		if err := db.Drop(ctx); err != nil {
			return nil, err
		}
		store, err := outmillmongo.New(db.Client(), outmillmongo.Config{Database: db.Name()}, nil)
		if err != nil {
			return nil, err
		}
		return store, store.Ensure(ctx)
	}, nil
}

// besideMongo measures a plain insert next to the publisher, and a claim without batches.
func besideMongo(ctx context.Context, s *storing) error {
	db, err := s.b.mongoDatabase(ctx, "beside")
	if err != nil {
		return err
	}
	p, indexed := &plainMongo{b: s.b, things: db.Collection("things")}, &plainMongo{b: s.b, things: db.Collection("indexed_records")}
	n, calls, few := s.b.n, max(1, s.b.n/appendAtOnce), max(1, s.b.n/50)
	list := messages(0, appendAtOnce, s.b.size)
	for i, msg := range list {
		outmill.SetKey(msg, keyOf(i))
	}
	err = s.b.compare(ctx,
		side{field: "mongo_publish_1000_per_s", title: "MongoDB, publish 1,000", n: calls * appendAtOnce, prepare: s.prepare(0),
			run: s.publish(calls, list)},
		side{field: "mongo_insert_many_per_s", title: "InsertMany of 1,000", n: calls * appendAtOnce, prepare: p.empty,
			run: times(calls, p.insertMany)},
		side{field: "mongo_insert_many_indexed_per_s", title: "InsertMany of 1,000, with indexes", n: calls * appendAtOnce,
			prepare: indexed.likeTheStores, run: times(calls, indexed.insertMany)},
		side{field: "mongo_insert_many_tx_per_s", title: "InsertMany of 1,000 in a transaction", n: calls * appendAtOnce, prepare: p.empty,
			run: times(calls, p.insertManyInTx)},
		side{field: "mongo_find_and_update_per_s", title: "findOneAndUpdate and deleteOne", n: few, prepare: p.fill(n),
			run: times(few, p.takeOne)},
	)
	r := &s.b.results
	r.ratio("mongo_claim_ratio", "MongoDB, claim and ack / findOneAndUpdate", "mongo_claim_ack_per_s", "mongo_find_and_update_per_s")
	r.ratio("mongo_publish_ratio", "MongoDB, publish / InsertMany", "mongo_publish_1000_per_s", "mongo_insert_many_per_s")
	r.ratio("mongo_publish_indexed_ratio", "MongoDB, publish / InsertMany with indexes", "mongo_publish_1000_per_s",
		"mongo_insert_many_indexed_per_s")
	return err
}

func (s *storing) publish(calls int, list message.Messages) func(ctx context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		pub, err := publisher.New(s.store, publisher.Config{}, nil)
		if err != nil {
			return 0, err
		}
		defer func() { _ = pub.Close() }()
		return times(calls, func(ctx context.Context) error { return pub.WithContext(ctx).Publish(storesTopic, list...) })(ctx)
	}
}

// plainMongo is an outbox written by hand, on a plain collection.
type plainMongo struct {
	b      *bench
	things *mongo.Collection
}

func (p *plainMongo) empty(ctx context.Context) error {
	if err := p.things.Drop(ctx); err != nil {
		return err
	}
	return p.things.Database().CreateCollection(ctx, p.things.Name())
}

// likeTheStores makes an empty collection with the same indexes as the store's collection.
func (p *plainMongo) likeTheStores(ctx context.Context) error {
	db := p.things.Database()
	if err := db.Drop(ctx); err != nil {
		return err
	}
	store, err := outmillmongo.New(db.Client(), outmillmongo.Config{Database: db.Name(), CollectionPrefix: "indexed_"}, nil)
	if err != nil {
		return err
	}
	return errors.Join(store.Ensure(ctx), store.Close())
}

// documents have the same fields as documents of the store. They are made each time, because a
// publisher must do that, too.
func (p *plainMongo) documents(n int) []any {
	list := make([]any, n)
	now := time.Now()
	for i, r := range records(storesTopic, 0, n, p.b.size, true) {
		id := outmill.NewWorkItemID()
		list[i] = bson.D{
			{Key: "_id", Value: bson.Binary{Subtype: bson.TypeBinaryUUID, Data: id[:]}}, {Key: "seq", Value: bson.Timestamp{}},
			{Key: "grp", Value: r.Group}, {Key: "topic", Value: r.Topic}, {Key: "key", Value: r.Key}, {Key: "status", Value: "pending"},
			{Key: "stage", Value: 0}, {Key: "open", Value: true}, {Key: "due_at", Value: now}, {Key: "next_at", Value: now},
			{Key: "created_at", Value: now}, {Key: "attempts", Value: 0}, {Key: "claims", Value: 0}, {Key: "expiries", Value: 0},
			{Key: "size", Value: r.Size()}, {Key: "message_id", Value: r.MessageID}, {Key: "generation", Value: int64(1)},
			{Key: "metadata", Value: r.Metadata}, {Key: "payload", Value: r.Payload},
		}
	}
	return list
}

func (p *plainMongo) insertMany(ctx context.Context) error {
	_, err := p.things.InsertMany(ctx, p.documents(appendAtOnce))
	return err
}

func (p *plainMongo) insertManyInTx(ctx context.Context) error {
	return p.things.Database().Client().UseSession(ctx, func(ctx context.Context) error {
		_, err := mongo.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) {
			return nil, errors.Join(ctx.Err(), p.insertMany(ctx))
		})
		return err
	})
}

// fill inserts this number of messages, and one more for the call that is not measured.
func (p *plainMongo) fill(n int) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if err := p.empty(ctx); err != nil {
			return err
		}
		_, err := p.things.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "status", Value: 1}, {Key: "next_at", Value: 1}}})
		for left := n + 1; left > 0 && err == nil; left -= appendAtOnce {
			_, err = p.things.InsertMany(ctx, p.documents(min(appendAtOnce, left)))
		}
		return err
	}
}

// takeOne leases the oldest waiting message, and deletes it.
func (p *plainMongo) takeOne(ctx context.Context) error {
	var taken struct {
		ID bson.RawValue `bson:"_id"`
	}
	now := time.Now()
	err := p.things.FindOneAndUpdate(ctx,
		bson.D{{Key: "status", Value: "pending"}, {Key: "next_at", Value: bson.D{{Key: "$lte", Value: now}}}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "status", Value: "leased"}, {Key: "next_at", Value: now.Add(time.Minute)}}}},
		options.FindOneAndUpdate().SetSort(bson.D{{Key: "next_at", Value: 1}}),
	).Decode(&taken)
	if err != nil {
		return err
	}
	deleted, err := p.things.DeleteOne(ctx, bson.D{{Key: "_id", Value: taken.ID}, {Key: "status", Value: "leased"}})
	if err == nil && deleted.DeletedCount != 1 {
		return errors.New("what was leased is gone")
	}
	return err
}
