package engine

import (
	"context"
	"slices"
	"time"

	"github.com/outmill/outmill/roles"
)

var _ roles.Examiner = (*Engine)(nil)

// clockWithin bounds the wait for the clock of a database in which something has failed.
const clockWithin = 5 * time.Second

// Examine has the driver look at its database, if it can, and compares the clocks. See roles.Examiner.
func (e *Engine) Examine(ctx context.Context, request roles.ExamineRequest) (found roles.Examination, err error) {
	const operation = "examine"
	if err := e.life.Usable(ctx); err != nil {
		return found, e.explain(ctx, operation, err)
	}
	if examiner, ok := e.db.(roles.Examiner); !ok {
		found.Skip("The settings of the database were not examined: the driver has nothing to examine.")
	} else if found, err = examiner.Examine(ctx, request); err != nil {
		return found, e.explain(ctx, operation, err)
	}
	failed := slices.ContainsFunc(found.Findings, func(f roles.Finding) bool { return f.Failure })
	if failed {
		// The database may not answer.
		within, cancel := context.WithTimeout(ctx, clockWithin)
		defer cancel()
		ctx = within
	}
	asked := time.Now()
	now, err := valueOf(ctx, e.view, operation, func(_ context.Context, t *tx) (time.Time, error) { return t.now.Of(), nil })
	if err == nil {
		// The database's clock has microseconds.
		found.AddClock(request, asked.Truncate(time.Microsecond), now, time.Now())
	} else if failed {
		// The finding is why the clock cannot be read.
		found.Skip("The clock was not examined: the database did not answer.")
		err = nil
	}
	return found, err
}
