package engine

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
)

// hurryWithin limits the time of the work after a commit.
const hurryWithin = 5 * time.Second

// hurryJoins reads the joins and makes due the records that wait for those that are decided
// or have ended. It follows each commit that may have decided a join.
//
// It cannot miss a record that is being snoozed at the same time, because a snooze reads
// the join after its own commit, so one of the two sees the other. If the process dies
// before it, the record is due when its snooze ends. An error is only logged,
// because the work that decided the joins is committed.
func (e *Engine) hurryJoins(ctx context.Context, ids []outmill.JoinID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hurryWithin)
	defer cancel()
	if err := e.makeDecidedDue(ctx, ids); err != nil {
		e.log.Error("Could not make the records due that wait for a decided join: they become due when their snooze ends", err,
			watermill.LogFields{"joins": len(ids)})
	}
}

func (e *Engine) makeDecidedDue(ctx context.Context, ids []outmill.JoinID) error {
	found, err := e.readJoins(ctx, "hurry", ids)
	if err != nil {
		return err
	}
	var decided []outmill.JoinID
	for _, join := range found {
		if join.Decided() {
			decided = append(decided, join.ID)
		}
	}
	if len(decided) == 0 {
		return nil
	}
	return e.makeDue(ctx, decided)
}
