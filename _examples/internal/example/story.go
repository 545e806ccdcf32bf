package example

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/subscriber"
)

// Topic is the topic of the messages about sales. The payload is the item.
const Topic = "sales"

// ErrCardDeclined is the reason for which a transaction is rolled back.
var ErrCardDeclined = errors.New("card declined")

// Sell writes the sale of an item and publishes it, both in one transaction.
// If ending is nil, the transaction is committed. Otherwise Sell rolls it back and returns ending.
type Sell func(ctx context.Context, item string, ending error) error

// Step is a part of a story.
type Step struct {
	// Happens describes the effect of Do.
	Happens string
	Do      func(ctx context.Context) error
}

// Story is a row of sales, some of which are rolled back.
type Story struct {
	Steps []Step
	// Kept has the items whose sales are committed.
	Kept []string
}

// TwoSales is a story of a transaction that is committed and one that is rolled
// back.
func TwoSales(sell Sell) Story {
	return Story{
		Steps: []Step{
			{"book: committed", func(ctx context.Context) error { return sell(ctx, "book", nil) }},
			{"yacht: rolled back, " + ErrCardDeclined.Error(), func(ctx context.Context) error {
				return wantError(sell(ctx, "yacht", ErrCardDeclined), ErrCardDeclined)
			}},
		},
		Kept: []string{"book"},
	}
}

// Tell does the steps, and prints what happens.
func (s Story) Tell(ctx context.Context, out io.Writer) error {
	for _, step := range s.Steps {
		if err := step.Do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.Happens, err)
		}
		fmt.Fprintln(out, step.Happens)
	}
	return nil
}

// Show tells the story. It returns an error unless exactly the committed sales are in the database,
// as sold returns them, and are delivered to a subscriber.
func (s Story) Show(ctx context.Context, out io.Writer, store outmill.Queue, sold func(context.Context) ([]string, error)) error {
	if err := s.Tell(ctx, out); err != nil {
		return err
	}
	sales, err := sold(ctx)
	if err != nil {
		return err
	}
	sub, err := subscriber.New(store, subscriber.Config{}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close() }()
	told, err := Listen(ctx, sub, Topic)
	if err != nil {
		return err
	}
	return Compare(out, s.Kept, Column{"sold", sales}, Column{"delivered", told})
}

// wantError returns nil if err is the error that the story expects.
func wantError(err, want error) error {
	switch {
	case errors.Is(err, want):
		return nil
	case err == nil:
		return fmt.Errorf("got no error, want: %w", want)
	}
	return err
}
