//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	xdriver "go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongoengine"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/roles"
)

// forgetsAfter is the number of seconds after which the server ends a transaction whose client is
// dead or stopped. The default is a minute, during which the keys of the transaction would be
// locked.
const forgetsAfter = 5

type mongoServer struct{ *mongoengine.Engine }

func serveMongo(t *testing.T) server {
	t.Helper()
	engine := mongotest.Own(t)
	require.NoError(t, engine.SetParameter(t.Context(), "transactionLifetimeLimitSeconds", forgetsAfter))
	return mongoServer{engine}
}

func (s mongoServer) address() string {
	u, err := url.Parse(s.URL)
	if err != nil {
		panic(err)
	}
	return u.Host
}

// url leads only to that address, even if the server names other members of its replica set.
func (mongoServer) url(address string) string {
	return "mongodb://" + address + "/?directConnection=true"
}

func (s mongoServer) restart(ctx context.Context) error { return s.Restart(ctx) }

func (s mongoServer) crash(ctx context.Context) error {
	if err := s.Kill(ctx); err != nil {
		return err
	}
	return s.Start(ctx)
}

type mongoDatabase struct{ store *mongo.Store }

func connectMongo(ctx context.Context, databaseURL string, logger watermill.LoggerAdapter) (database, error) {
	store, err := mongo.Open(ctx, databaseURL, mongo.Config{}, logger)
	if err != nil {
		return nil, err
	}
	return mongoDatabase{store}, nil
}

func (d mongoDatabase) close() error { return d.store.Close() }

func (d mongoDatabase) outbox() outbox { return d.store }

func (d mongoDatabase) collection(name string) *driver.Collection {
	return d.store.Client().Database("chaos").Collection(name)
}

// The documents of the application's collections.
type (
	accountDocument struct {
		Key string `bson:"_id"`
		N   int    `bson:"n"`
	}
	ledgerDocument struct {
		UUID string `bson:"_id"`
		Key  string `bson:"key"`
		N    int    `bson:"n"`
	}
	startedDocument struct {
		ID     string           `bson:"_id"`
		Steps  int              `bson:"steps"`
		Wanted roles.JoinStatus `bson:"wanted"`
	}
)

func (d mongoDatabase) prepare(ctx context.Context) error {
	var errs []error
	for _, name := range []string{"ledger", "started"} {
		errs = append(errs, d.collection(name).Database().CreateCollection(ctx, name))
	}
	for i := range keyCount {
		_, err := d.collection("accounts").InsertOne(ctx, accountDocument{Key: keyName(i)})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (d mongoDatabase) transact(ctx context.Context, dice *rand.Rand, fn func(context.Context, session) error) error {
	if dice.IntN(3) == 0 {
		return d.store.InTx(ctx, func(ctx context.Context) error { return fn(ctx, mongoSession{d}) })
	}
	tx, err := d.store.Client().StartSession()
	if err != nil {
		return err
	}
	defer tx.EndSession(context.WithoutCancel(ctx))
	_, err = tx.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		// The driver repeats for two minutes, even if the context ends.
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return nil, fn(ctx, mongoSession{d})
	})
	return err
}

func (d mongoDatabase) ledger(ctx context.Context) (map[string]entry, error) {
	ledger := map[string]entry{}
	found, err := all[ledgerDocument](ctx, d.collection("ledger"))
	for _, e := range found {
		ledger[e.UUID] = entry{e.Key, e.N}
	}
	return ledger, err
}

func (d mongoDatabase) promised(ctx context.Context) (map[outmill.JoinID]promise, error) {
	promises := map[outmill.JoinID]promise{}
	found, err := all[startedDocument](ctx, d.collection("started"))
	for _, s := range found {
		id, malformed := outmill.ParseJoinID(s.ID)
		err = errors.Join(err, malformed)
		promises[id] = promise{s.Steps, s.Wanted}
	}
	return promises, err
}

func all[T any](ctx context.Context, from *driver.Collection) ([]T, error) {
	cursor, err := from.Find(ctx, bson.D{})
	if err != nil {
		return nil, err
	}
	var found []T
	return found, cursor.All(ctx, &found)
}

// The codes of a server that shuts down, or ends a transaction: MongoDB's error_codes.yml.
const (
	codeShutdownInProgress    = 91
	codeTransactionTooLong    = 290
	codeInterruptedAtShutdown = 11600
)

func (mongoDatabase) kindOf(err error) (kind string, expected bool) {
	// The driver returns the second type from a commit whose second try found no server.
	var fromServer driver.ServerError
	var unconfirmed xdriver.WriteCommandError
	var unsent xdriver.RetryablePoolError
	switch {
	case errors.As(err, &unsent) && unsent.Retryable():
		return "connection lost by another command", true
	case driver.IsNetworkError(err):
		return "connection lost", true
	case errors.As(err, new(topology.ServerSelectionError)):
		return "no server", true
	case driver.IsTimeout(err), errors.Is(err, context.DeadlineExceeded):
		return "timeout", true
	case errors.As(err, &fromServer):
		return fmt.Sprint(fromServer.ErrorCodes()), slices.ContainsFunc(fromServer.ErrorCodes(), endsTransactions)
	case errors.As(err, &unconfirmed) && unconfirmed.WriteConcernError != nil:
		code := int(unconfirmed.WriteConcernError.Code)
		return fmt.Sprint("unconfirmed ", code), shutsDown(code)
	}
	return fmt.Sprintf("%T", err), false
}

// endsTransactions: a transaction that reads a list may last longer than forgetsAfter where nothing gets any time.
func endsTransactions(code int) bool { return code == codeTransactionTooLong || shutsDown(code) }

func shutsDown(code int) bool {
	return code == codeShutdownInProgress || code == codeInterruptedAtShutdown
}

// mongoSession is a transaction whose contexts carry it.
type mongoSession struct{ mongoDatabase }

func (mongoSession) carry(ctx context.Context) context.Context { return ctx }

func (s mongoSession) advance(ctx context.Context, key string, by int) (int, error) {
	var before accountDocument
	err := s.collection("accounts").FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: key}},
		bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: by}}}}, options.FindOneAndUpdate().SetReturnDocument(options.Before)).Decode(&before)
	return before.N, err
}

func (s mongoSession) record(ctx context.Context, uuid string, e entry) error {
	_, err := s.collection("ledger").InsertOne(ctx, ledgerDocument{uuid, e.key, e.n})
	return err
}

func (s mongoSession) recordJoin(ctx context.Context, id outmill.JoinID, p promise) error {
	_, err := s.collection("started").InsertOne(ctx, startedDocument{id.String(), p.steps, p.wanted})
	return err
}
