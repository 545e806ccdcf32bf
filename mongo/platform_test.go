package mongo_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongoengine"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
)

func TestStore_Platform(t *testing.T) {
	t.Parallel()

	// A real mongod gives the answers of servers that only speak its protocol.
	t.Run("a server that lacks a needed feature is refused before it has a schema", func(t *testing.T) {
		t.Parallel()
		server := mongotest.Own(t)
		admin := clientOf(t, options.Client().ApplyURI(server.URL))
		for lack, failure := range map[string]bson.D{
			"$unionWith":           {{Key: "failCommands", Value: bson.A{"aggregate"}}, {Key: "errorCode", Value: 304}},
			"aggregation pipeline": {{Key: "failCommands", Value: bson.A{"update"}}, {Key: "errorCode", Value: 9}},
			"partial indexes":      {{Key: "failCommands", Value: bson.A{"createIndexes"}}, {Key: "errorCode", Value: 115}},
			"several collections":  {{Key: "failCommands", Value: bson.A{"insert"}}, {Key: "errorCode", Value: 263}},
		} {
			t.Run(lack, func(t *testing.T) {
				app := "lacks " + lack
				db := "test" + outmill.NewWorkItemID().String()
				store := newStore(t, victimOf(t, server.URL, app), mongo.Config{Database: db})
				failing(t, admin, app, 100, failure)
				err := store.Ensure(t.Context())
				require.ErrorIs(t, err, errors.ErrUnsupported)
				require.ErrorContains(t, err, lack)
				require.ErrorContains(t, err, "DocumentDB")
				require.ErrorContains(t, err, "docs/mongodb.md")
				require.NoError(t, admin.Database("admin").RunCommand(t.Context(),
					bson.D{{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: "off"}}).Err())
				require.ErrorIs(t, store.Append(t.Context(), one("never")), outmill.ErrSchemaMissing)
				require.NoError(t, store.Ensure(t.Context()), "nothing is in the way of the next try")
			})
		}
	})

	t.Run("a server that is too old is refused before anything is made", func(t *testing.T) {
		t.Parallel()
		db := mongotest.Database(t)
		at, err := url.Parse(mongotest.Server(t))
		require.NoError(t, err)
		client := clientOf(t, options.Client().SetHosts([]string{aged(t, at.Host)}).SetDirect(true))
		store := newStore(t, client, mongo.Config{Database: db.Name()})
		err = store.Ensure(t.Context())
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, "needs 5.0 or later")
		names, err := db.ListCollectionNames(t.Context(), bson.D{})
		require.NoError(t, err)
		require.Empty(t, names)
	})

	t.Run("a missing right is not reported as a missing feature", func(t *testing.T) {
		t.Parallel()
		server := mongotest.Own(t)
		admin := clientOf(t, options.Client().ApplyURI(server.URL))
		store := newStore(t, victimOf(t, server.URL, "guest"), mongo.Config{Database: "test"})
		failing(t, admin, "guest", 1, bson.D{{Key: "failCommands", Value: bson.A{"update"}}, {Key: "errorCode", Value: 13}})
		err := store.Ensure(t.Context())
		require.ErrorContains(t, err, "Unauthorized")
		require.NotErrorIs(t, err, errors.ErrUnsupported)
	})

	t.Run("a standalone server is refused, with the remedy", func(t *testing.T) {
		t.Parallel()
		server := mongotest.Own(t, mongoengine.Standalone)
		store := newStore(t, clientOf(t, options.Client().ApplyURI(server.URL)), mongo.Config{Database: "test"})
		err := store.Ensure(t.Context())
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, "rs.initiate()")
	})

	// While an index build waits for an open transaction, all other operations wait behind it.
	t.Run("the build of a missing index does not stop the outbox while a transaction stays open", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		require.NoError(t, s.Append(t.Context(), one("before")))
		require.NoError(t, s.records().Indexes().DropOne(t.Context(), "expiring"))
		session := s.session(t)
		require.NoError(t, session.StartTransaction())
		require.NoError(t, s.Append(s.WithTx(t.Context(), session), one("open")))

		building := make(chan struct{})
		var once, done sync.Once
		store := s.watched(t, mongo.Config{WithoutChangeStream: true}, func(e *event.CommandStartedEvent) {
			if e.CommandName == "createIndexes" {
				once.Do(func() { close(building) })
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var ensuring sync.WaitGroup
		ensuring.Go(func() {
			if err := store.Ensure(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
		defer ensuring.Wait()
		defer done.Do(cancel)
		<-building
		within, stop := context.WithTimeout(t.Context(), 20*time.Second)
		defer stop()
		require.NoError(t, s.Append(within, one("during")), "the transaction is still open")
		require.NotContains(t, indexesOf(t, s.records()), "expiring")
		require.NoError(t, session.CommitTransaction(t.Context()))
		done.Do(cancel)
		ensuring.Wait()
		require.NoError(t, s.Ensure(t.Context()))
		require.Contains(t, indexesOf(t, s.records()), "expiring")
		require.Equal(t, []string{"before", "during", "open"}, listed(t, s))
	})
}

// aged forwards to a mongod, and makes it report version 4.
func aged(t *testing.T, to string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var work sync.WaitGroup
	t.Cleanup(work.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	said, says := []byte("versionArray\x00\x21\x00\x00\x00\x100\x00"), byte(4)
	serve := func(client net.Conn) {
		server, err := net.Dial("tcp", to)
		if err != nil {
			_ = client.Close()
			return
		}
		work.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
		answer := make([]byte, 1<<20)
		for {
			n, err := server.Read(answer)
			if at := bytes.Index(answer[:n], said); at >= 0 && at+len(said) < n {
				answer[at+len(said)] = says
			}
			if _, failed := client.Write(answer[:n]); err != nil || failed != nil {
				_ = client.Close()
				return
			}
		}
	}
	work.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			work.Go(func() { serve(client) })
		}
	})
	return listener.Addr().String()
}
