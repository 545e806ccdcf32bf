package memdriver_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/memdriver"
)

// once is a driver that writes each message once.
type once struct {
	driver.DB
	got []driver.NewRow
}

func (o *once) Update(ctx context.Context, begin driver.Begin, fn func(driver.Tx) error) error {
	return o.DB.Update(ctx, begin, func(t driver.Tx) error { return fn(onceTx{t, o}) })
}

type onceTx struct {
	driver.Tx
	once *once
}

func (t onceTx) InsertMessages(ctx context.Context, messages []driver.NewRow) error {
	t.once.got = slices.Clone(messages)
	return t.Insert(ctx, driver.WithCopies(messages))
}

func TestAppendOnce(t *testing.T) {
	t.Parallel()
	log := &once{DB: memdriver.Driver{Database: memdriver.New()}}
	store := engine.New(log, engine.Config{Name: "memory"})
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	for _, group := range []string{"c", "a", "b"} {
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: group}))
	}
	records := []*outmill.Record{{Topic: "orders", MessageID: "1"}, {Topic: "orders", MessageID: "2"}}
	require.NoError(t, store.Append(t.Context(), records...))

	t.Run("a driver with a log gets a row for each message, whatever the number of groups", func(t *testing.T) {
		t.Parallel()
		require.Len(t, log.got, 2)
		for i, row := range log.got {
			require.Equal(t, "a", row.Group)
			require.Equal(t, []string{"b", "c"}, row.CopyTo)
			require.Equal(t, records[i].ID, row.ID)
		}
	})
	t.Run("the records of a call share the list of their further groups", func(t *testing.T) {
		t.Parallel()
		require.Same(t, &records[0].CopiedTo[0], &records[1].CopiedTo[0])
	})
	t.Run("each group has its row behind that of the group before", func(t *testing.T) {
		t.Parallel()
		rows := driver.WithCopies(log.got)
		require.Len(t, rows, 6)
		for i, row := range rows {
			require.Equal(t, []string{"a", "b", "c"}[i%3], row.Group)
			require.Nil(t, row.CopyTo)
			found, err := store.Get(t.Context(), row.ID)
			require.NoError(t, err)
			require.Equal(t, records[i/3].MessageID, found.MessageID)
		}
	})
}
