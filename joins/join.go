package joins

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// Topic is the topic to which Wait publishes and which the handler of AddHandlers reads.
const Topic = storekit.JoinWaitTopic

// Start begins a join, in the transaction that ctx carries or one of its own, and returns
// its id: join.ID, or a new id if that is zero. Steps may be published in the same
// transaction.
//
// Errors: outmill.ErrInvalidRecord (with the field and the reason), ErrJoinExists if
// another join has the id, ErrForeignTx, or the database's error, wrapped; ErrInvalidConfig
// for a nil store.
func Start(ctx context.Context, store roles.Joins, join roles.Join) (outmill.JoinID, error) {
	if outmill.IsNil(store) {
		return outmill.JoinID{}, fmt.Errorf("%w: joins.Start: the store is nil", outmill.ErrInvalidConfig)
	}
	if err := store.StartJoin(ctx, &join); err != nil {
		return outmill.JoinID{}, err
	}
	return join.ID, nil
}

// AddStep makes the message a step of these joins too. The Publish that appends the message
// attaches the step in the same transaction; otherwise it writes nothing and fails with
// [roles.ErrUnknownJoin], ErrJoinFinished or ErrTooManySteps. A message may be a step of
// up to 100 joins. Naming a join twice has no further effect.
func AddStep(msg *message.Message, ids ...outmill.JoinID) {
	// Ids that were set while the message had another UUID are signed again.
	told, _ := outmill.InstructionsOf(msg)
	var all []outmill.JoinID
	for name := range strings.SplitSeq(told[outmill.InstructionJoins], ",") {
		if id, err := outmill.ParseJoinID(name); err == nil {
			all = append(all, id)
		}
	}
	for _, id := range ids {
		if !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	outmill.SetJoins(msg, all...)
}
