package memdriver_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/memdriver"
	"github.com/outmill/outmill/roles"
)

// A claim by key hands out first what a pause has held, also if a crash has left more notes than a claim looks at in front
// of that of the pause.
func TestClaim_PauseBehindNotes(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	r.register(ctx)
	scope := roles.PauseScope{TenantID: "acme"}
	r.ok(r.store.Pause(ctx, scope, "ann", "x"))
	r.append(ctx, &outmill.Record{MessageID: "first", Key: "k", TenantID: "acme"})
	require.Empty(t, r.claim(ctx, a, 5, anyOrder), "paused")
	var left driver.Changes
	for i := range 100 {
		left.Notes = append(left.Notes, driver.Note{Line: driver.Line{Group: group, Topic: topic}, Name: driver.KeyNote(fmt.Sprint("k", i))})
	}
	db := memdriver.Driver{Database: r.harness.store.db}
	r.ok(db.Update(ctx, driver.Begin{}, func(tx driver.Tx) error {
		_, err := tx.Apply(ctx, left)
		return err
	}))
	_, err := r.store.Resume(ctx, scope)
	r.ok(err)
	r.append(ctx, rec("second", "k"))
	require.Equal(t, []string{"first", "second"}, ids(r.claim(ctx, b, 5)))
}
