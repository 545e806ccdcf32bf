package example

import (
	"context"
	"errors"
)

var errOutOfRibbon = errors.New("out of ribbon")

// Savepoints sells in transactions with savepoints. Tx is the driver's type of a
// transaction.
type Savepoints[Tx any] struct {
	// Transaction runs fn in a transaction, and rolls back if fn returns an error.
	Transaction func(ctx context.Context, fn func(tx Tx) error) error
	// Savepoint runs fn after a savepoint of tx, and rolls back to the savepoint if fn returns an
	// error.
	Savepoint func(ctx context.Context, tx Tx, fn func(tx Tx) error) error
	// Sell writes the sale of an item and publishes it, both in tx.
	Sell func(ctx context.Context, tx Tx, item string) error
}

// Story is TwoSales and two more sales, each with a part after a savepoint.
func (s Savepoints[Tx]) Story() Story {
	story := TwoSales(func(ctx context.Context, item string, ending error) error {
		return s.Transaction(ctx, func(tx Tx) error {
			if err := s.Sell(ctx, tx, item); err != nil {
				return err
			}
			return ending
		})
	})
	story.Steps = append(story.Steps,
		Step{"vase: committed; its wrapping: rolled back to the savepoint, " + errOutOfRibbon.Error(), func(ctx context.Context) error {
			return s.sellWithPart(ctx, "vase", "wrapping", errOutOfRibbon)
		}},
		Step{"lamp: committed; its bulb: committed, in a savepoint", func(ctx context.Context) error {
			return s.sellWithPart(ctx, "lamp", "bulb", nil)
		}})
	story.Kept = append(story.Kept, "lamp", "bulb", "vase")
	return story
}

// sellWithPart sells the item, and after a savepoint the part. The part ends with the error ending,
// if it is not nil.
func (s Savepoints[Tx]) sellWithPart(ctx context.Context, item, part string, ending error) error {
	return s.Transaction(ctx, func(tx Tx) error {
		if err := s.Sell(ctx, tx, item); err != nil {
			return err
		}
		err := s.Savepoint(ctx, tx, func(tx Tx) error {
			if err := s.Sell(ctx, tx, part); err != nil {
				return err
			}
			return ending
		})
		if ending == nil {
			return err
		}
		return wantError(err, ending)
	})
}
