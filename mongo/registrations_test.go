package mongo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/mongo"
)

func lasting(topic string) outmill.Registration {
	return outmill.Registration{Group: "brief", TTL: time.Hour, Topics: outmill.Topics{Include: []string{topic}}}
}

// over moves the end of registrations with a TTL into the past.
func over(t *testing.T, s stand) {
	t.Helper()
	_, err := s.entries().UpdateMany(t.Context(),
		bson.D{{Key: "_id.kind", Value: "registration"}, {Key: "at", Value: bson.D{{Key: "$gt", Value: 0}}}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "at", Value: time.Now().Add(-time.Hour).UnixMicro()}}}})
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
	found, err := s.List(t.Context(), outmill.ListQuery{Group: "brief"})
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

	t.Run("a registration that becomes permanent while another process renews it stays permanent", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		require.NoError(t, s.RegisterGroup(t.Context(), lasting("orders")))
		permanent := lasting("orders")
		permanent.TTL = 0
		store := s.interrupted(t, "findAndModify", "meta", func() { require.NoError(t, s.RegisterGroup(t.Context(), permanent)) })
		require.NoError(t, store.RegisterGroup(t.Context(), lasting("orders")))
		left, _ := briefly(t, s)
		require.Len(t, left, 1)
		require.Zero(t, left[0].ExpiresAt)
	})
}
