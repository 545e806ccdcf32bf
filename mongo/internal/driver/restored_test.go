package driver_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	contract "github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo/internal/driver"
)

// A process that ran across a restore has read the registrations of a generation of before.
func TestBump_NoGenerationComesTwiceAfterARestore(t *testing.T) {
	t.Parallel()
	db := mongotest.Database(t)
	d := driver.New(db.Client(), driver.Config{Name: "restored", Database: db.Name()})
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	require.NoError(t, d.Ensure(t.Context()))
	bumped := func() (now contract.Generations) {
		require.NoError(t, d.Update(t.Context(), contract.Begin{}, func(tx contract.Tx) (err error) {
			now, err = tx.Bump(t.Context(), true, true)
			return err
		}))
		return now
	}
	restore := func() {
		_, err := db.Collection("meta").UpdateOne(context.WithoutCancel(t.Context()), bson.D{},
			bson.D{{Key: "$set", Value: bson.D{{Key: "routes", Value: int64(0)}, {Key: "pauses", Value: int64(0)}}}})
		require.NoError(t, err)
	}
	was := bumped()
	restore()
	// The clock of the database has milliseconds.
	require.Eventually(t, func() bool {
		now := bumped()
		restore()
		return now.Routes > was.Routes && now.Pauses > was.Pauses
	}, time.Minute, time.Millisecond)
}
