package mongo_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

func TestStore_Away(t *testing.T) {
	t.Parallel()

	t.Run("a server that had too little time to make a write sure is away, also in a call of several writes", func(t *testing.T) {
		t.Parallel()
		const app = "hurried"
		server := mongotest.Own(t)
		admin := clientOf(t, options.Client().ApplyURI(server.URL))
		client := clientOf(t, options.Client().ApplyURI(server.URL).SetAppName(app))
		s := newStore(t, client, mongo.Config{Database: "test"})
		require.NoError(t, s.Ensure(t.Context()))
		require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{}))
		require.NoError(t, s.Append(t.Context(), &outmill.Record{Topic: "orders"}, &outmill.Record{Topic: "orders"}))
		found, err := s.Claim(t.Context(), outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Limit: 2, Lease: time.Minute})
		require.NoError(t, err)
		require.Len(t, found, 2)
		leases := []outmill.Lease{found[0].Lease(), found[1].Lease()}
		for name, call := range map[string]func() error{
			"extend": func() error { _, err := s.Extend(t.Context(), time.Minute, leases); return err },
			"snooze": func() error {
				return s.Snooze(t.Context(), []outmill.Settlement{{Lease: leases[0]}, {Lease: leases[1]}})
			},
		} {
			failing(t, admin, app, 1, bson.D{
				{Key: "failCommands", Value: bson.A{"update"}},
				{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: 50}, {Key: "errmsg", Value: "operation exceeded time limit"}}},
			})
			err := call()
			t.Log(name, err)
			require.ErrorIs(t, err, storekit.ErrStoreAway, name)
		}
	})
	t.Run("a server that goes away is no join and no handler of others, and the driver's WithTransaction begins again", func(t *testing.T) {
		t.Parallel()
		const app = "leaving"
		server := mongotest.Own(t)
		admin := clientOf(t, options.Client().ApplyURI(server.URL))
		s := newStore(t, clientOf(t, options.Client().ApplyURI(server.URL).SetAppName(app)), mongo.Config{Database: "test"})
		require.NoError(t, s.Ensure(t.Context()))
		for name, call := range map[string]func(ctx context.Context) error{
			"a join": func(ctx context.Context) error { return s.StartJoin(ctx, &roles.Join{ExpectedSteps: 1}) },
			"a note": func(ctx context.Context) error {
				_, err := s.PutNote(ctx, roles.Note{Consumer: "c", Key: "k", Retention: time.Hour}, time.Second)
				return err
			},
		} {
			session, err := s.Client().StartSession()
			require.NoError(t, err)
			failing(t, admin, app, 1, bson.D{{Key: "failCommands", Value: bson.A{"insert"}}, {Key: "errorCode", Value: 91}})
			runs := 0
			_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
				runs++
				return nil, call(ctx)
			})
			session.EndSession(t.Context())
			require.NoError(t, err, name)
			require.Equal(t, 2, runs, name)
		}
	})
}
