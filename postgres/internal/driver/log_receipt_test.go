package driver_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	contract "github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/postgres/internal/driver"
)

// interposed is a driver before whose first Scan something happens, in transactions of its own and of callers.
type interposed struct {
	*driver.Driver
	once   *sync.Once
	before func()
}

type interposedTx struct {
	contract.Tx
	d interposed
}

func (d interposed) in(fn func(contract.Tx) error) func(contract.Tx) error {
	return func(t contract.Tx) error { return fn(interposedTx{t, d}) }
}

func (d interposed) Update(ctx context.Context, begin contract.Begin, fn func(contract.Tx) error) error {
	return d.Driver.Update(ctx, begin, d.in(fn))
}

func (d interposed) Within(ctx context.Context, tx any, fn func(contract.Tx) error) error {
	return d.Driver.Within(ctx, tx, d.in(fn))
}

func (d interposed) AppendWithin(ctx context.Context, tx any, fn func(contract.Tx) error) error {
	return d.Driver.AppendWithin(ctx, tx, d.in(fn))
}

func (t interposedTx) Scan(ctx context.Context, kind, prefix string) ([]contract.Entry, error) {
	t.d.once.Do(t.d.before)
	return t.Tx.Scan(ctx, kind, prefix)
}

func (t interposedTx) InsertMessages(ctx context.Context, messages []contract.NewRow) error {
	return t.Tx.(contract.MessageInserter).InsertMessages(ctx, messages)
}

// A group registers after an append has read the number of the last event, and before it reads the registrations.
func TestLogIDs_OfAGroupThatRegistersDuringTheAppend(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"its own transaction", "a transaction of the caller", "its own transaction, copied", "a transaction of the caller, copied",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openLogged(t)
			own := s.another(t)
			own.Copies(strings.HasSuffix(name, "copied"))
			d := interposed{Driver: own, once: new(sync.Once), before: func() {
				require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{
					Group: "a", Topics: outmill.Topics{Include: []string{"orders"}},
				}))
			}}
			appends := engine.New(d, engine.Config{})
			r := &outmill.Record{Topic: "orders", Payload: []byte("x")}
			if strings.HasPrefix(name, "its own transaction") {
				require.NoError(t, appends.Append(t.Context(), r))
			} else {
				tx, err := s.db.Begin(t.Context())
				require.NoError(t, err)
				require.NoError(t, appends.Append(d.WithTx(t.Context(), tx), r))
				require.NoError(t, tx.Commit(t.Context()))
			}
			require.Equal(t, "a", r.Group)
			for group, id := range map[string]outmill.WorkItemID{
				"a": r.ID, "first": outmill.CopyID(r.ID, "first"), "second": outmill.CopyID(r.ID, "second"),
			} {
				got, err := s.Get(t.Context(), id)
				require.NoError(t, err, group)
				require.Equal(t, group, got.Group)
			}
		})
	}
}
