package engine

import (
	"context"
	"time"

	"github.com/outmill/outmill/roles"
)

var _ roles.Examiner = (*Engine)(nil)

// Examine compares the clocks, and has the driver look at its database, if it can. See roles.Examiner.
func (e *Engine) Examine(ctx context.Context, request roles.ExamineRequest) (roles.Examination, error) {
	const operation = "examine"
	var found roles.Examination
	asked := time.Now()
	var now time.Time
	err := e.view(ctx, operation, func(_ context.Context, t *tx) error {
		now = t.now.Of()
		return nil
	})
	if err != nil {
		return found, err
	}
	// The database's clock has microseconds.
	found.AddClock(request, asked.Truncate(time.Microsecond), now, time.Now())
	examiner, ok := e.db.(roles.Examiner)
	if !ok {
		found.Skip("The settings of the database were not examined: the driver has nothing to examine.")
		return found, nil
	}
	more, err := examiner.Examine(ctx, request)
	found.Add(more.Findings...)
	found.Unchecked = append(found.Unchecked, more.Unchecked...)
	return found, e.explain(ctx, operation, err)
}
