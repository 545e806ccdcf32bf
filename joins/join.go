package joins

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// Topic is where Wait publishes and what the handler of AddHandlers reads.
const Topic = outmill.JoinWaitTopic

// Start begins a join, in the transaction that ctx carries or one of its own,
// and returns its id: join.ID, or a new one where that is zero. Steps may be
// published in the same transaction.
//
// Errors: outmill.ErrInvalidRecord (which field and why), ErrJoinExists where
// another join has that id, ErrForeignTx, or the database's own, wrapped;
// ErrInvalidConfig for a nil store.
func Start(ctx context.Context, store outmill.Joins, join outmill.Join) (outmill.JoinID, error) {
	if outmill.IsNil(store) {
		return outmill.JoinID{}, fmt.Errorf("%w: joins.Start: the store is nil", outmill.ErrInvalidConfig)
	}
	if err := store.StartJoin(ctx, &join); err != nil {
		return outmill.JoinID{}, err
	}
	return join.ID, nil
}

// SetMember makes the message a step of the joins, besides those that it has:
// the Publish that appends it attaches it, in the same transaction, or fails
// with outmill.ErrUnknownJoin, ErrJoinFinished or ErrTooManySteps and writes
// nothing. It is outmill.AddJoins.
func SetMember(msg *message.Message, ids ...outmill.JoinID) { outmill.AddJoins(msg, ids...) }
