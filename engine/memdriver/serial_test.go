package memdriver_test

import (
	"context"
	"testing"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/memdriver"
)

// serial fails the test if the engine changes a row that it has not read in the same transaction, or has changed since: a
// driver that is Serial need not notice that. See driver.Changes.
type serial struct {
	memdriver.Driver
	t *testing.T
}

func (s serial) Update(ctx context.Context, begin driver.Begin, fn func(driver.Tx) error) error {
	may := s.Loses()
	return s.Driver.Update(ctx, begin, func(t driver.Tx) error {
		err := fn(serialTx{t, s.t, may})
		if err == nil && may {
			s.requireNotes(t)
		}
		return err
	})
}

// requireNotes fails the test if a row is held that no claim finds any more: its note does not exist, or begins behind it.
func (s serial) requireNotes(t driver.Tx) {
	for _, r := range memdriver.Unnoted(t) {
		s.t.Errorf("row %d of %v is held under the note %q, which does not exist, or begins behind it", r.Seq, r.Line, r.Under)
	}
}

type serialTx struct {
	driver.Tx
	t *testing.T
	// mayLose: the test loses rows.
	mayLose bool
}

func (t serialTx) Apply(ctx context.Context, c driver.Changes) (driver.Applied, error) {
	done, err := t.Tx.Apply(ctx, c)
	if !t.mayLose && len(done.Lost) > 0 {
		t.t.Errorf("the engine changes rows that are not as it has read them in the transaction: %v", done.Lost)
	}
	return done, err
}
