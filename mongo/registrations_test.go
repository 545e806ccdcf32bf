package mongo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/mongo"
)

func lasting(topic string) outmill.Registration {
	return outmill.Registration{Group: "brief", TTL: time.Hour, Topics: outmill.Topics{Include: []string{topic}}}
}

// over moves the end of registrations with a TTL into the past.
func over(t *testing.T, s stand) {
	t.Helper()
	_, err := s.db.Collection("outmill_meta").UpdateOne(t.Context(), bson.D{},
		bson.D{{Key: "$set", Value: bson.D{{Key: "groups.$[g].expires_at", Value: time.Now().Add(-time.Hour)}}}},
		options.UpdateOne().SetArrayFilters([]any{bson.D{{Key: "g.group", Value: "brief"}}}))
	require.NoError(t, err)
}

func briefly(t *testing.T, s stand) (registrations []outmill.RegistrationInfo, names []string) {
	t.Helper()
	groups, err := s.Groups(t.Context())
	require.NoError(t, err)
	for _, g := range groups {
		if g.Group == "brief" {
			registrations = g.Registrations
		}
	}
	group := "brief"
	found, err := s.List(t.Context(), outmill.ListQuery{Group: group})
	require.NoError(t, err)
	return registrations, namesOf(found)
}

func TestStore_Registrations(t *testing.T) {
	t.Parallel()

	t.Run("a registration that is renewed before the janitor removes it stays", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		require.NoError(t, s.RegisterGroup(t.Context(), lasting("orders")))
		require.NoError(t, s.Append(t.Context(), one("one")))
		over(t, s)
		store := s.interrupted(t, "findAndModify", "meta", func() {
			require.NoError(t, s.RegisterGroup(t.Context(), lasting("orders")))
		})
		registrations, records, err := store.ExpireRegistrations(t.Context(), 10)
		require.NoError(t, err)
		require.Zero(t, registrations+records)
		left, names := briefly(t, s)
		require.Len(t, left, 1)
		require.Equal(t, []string{"one"}, names)
	})

	t.Run("records of a new registration survive the sweep of the old one", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		require.NoError(t, s.RegisterGroup(t.Context(), lasting("orders")))
		require.NoError(t, s.Append(t.Context(), one("before")))
		over(t, s)
		store := s.interrupted(t, "find", "records", func() {
			require.NoError(t, s.RegisterGroup(t.Context(), lasting("orders")))
			require.NoError(t, s.Append(t.Context(), one("after")))
		})
		registrations, records, err := store.ExpireRegistrations(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, []int{1, 1}, []int{registrations, records})
		left, names := briefly(t, s)
		require.Len(t, left, 1)
		require.Equal(t, []string{"after"}, names)
	})

	t.Run("a registration that becomes permanent while another process renews it stays permanent", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		require.NoError(t, s.RegisterGroup(t.Context(), lasting("orders")))
		permanent := lasting("orders")
		permanent.TTL = 0
		store := s.interrupted(t, "update", "meta", func() { require.NoError(t, s.RegisterGroup(t.Context(), permanent)) })
		require.NoError(t, store.RegisterGroup(t.Context(), lasting("orders")))
		left, _ := briefly(t, s)
		require.Len(t, left, 1)
		require.Zero(t, left[0].ExpiresAt)
	})
}
