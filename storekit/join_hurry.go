package storekit

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
)

// hurryWithin limits the time of the work after a commit.
const hurryWithin = 5 * time.Second

// HurryJoins reads the joins and makes due the records that wait for those that are decided
// or have ended. A store calls it after each commit that may have decided a join.
//
// It cannot miss a record that is being snoozed at the same time, because a snooze reads
// the join after its own commit, so one of the two sees the other. If the process dies
// before HurryJoins, the record is due when its snooze ends. An error is only logged,
// because the work that decided the joins is committed.
func HurryJoins(ctx context.Context, store JoinStore, ids []outmill.JoinID, logger watermill.LoggerAdapter) {
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hurryWithin)
	defer cancel()
	if err := hurryJoins(ctx, store, ids); err != nil {
		logger.Error("Could not make the records due that wait for a decided join: they become due when their snooze ends", err,
			watermill.LogFields{"joins": len(ids)})
	}
}

func hurryJoins(ctx context.Context, store JoinStore, ids []outmill.JoinID) error {
	found, err := store.ReadJoins(ctx, "hurry", ids)
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
	return store.MakeDue(ctx, decided)
}
