package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/outmill/outmill"
)

var errThrownAway = errors.New("thrown away")

// write appends n times, to keys that no other writer uses.
func (w *stress) write(ctx context.Context, writer, n int) {
	next := map[string]int{}
	for range n {
		records, then := drawRecords(writer, next)
		began := w.beginAppend()
		kept := w.append(ctx, records)
		w.endAppend(began, records, kept)
		if kept {
			next = then
		}
	}
}

// drawRecords draws records, each the next one of its key. It returns the numbers that follow if
// the records are committed.
func drawRecords(writer int, next map[string]int) (records []*outmill.Record, then map[string]int) {
	then = map[string]int{}
	for key, n := range next {
		then[key] = n
	}
	for range 1 + rand.N(5) {
		key := fmt.Sprintf("%c%d-%d", []rune{safe, safe, unsafe}[rand.N(3)], writer, rand.N(3))
		topic := orders
		if key[len(key)-1] == '0' {
			topic = "invoices"
		}
		r := &outmill.Record{Topic: topic, Key: key, MessageID: fmt.Sprintf("%s/%d", key, then[key])}
		if key[0] == unsafe && rand.N(5) == 0 {
			r.TimeToLive = someTime()
		}
		if key[0] == unsafe && rand.N(5) == 0 {
			r.Delay = someTime()
		}
		then[key]++
		records = append(records, r)
	}
	return records, then
}

func someTime() time.Duration { return time.Duration(1+rand.N(30)) * time.Millisecond }

// append appends the records, and reports whether they are committed.
func (w *stress) append(ctx context.Context, records []*outmill.Record) bool {
	store := w.store()
	var err error
	switch rand.N(4) {
	case 0:
		err = store.Append(ctx, records...)
	case 1:
		err = w.inTx(ctx, store, func(ctx context.Context) error {
			return errors.Join(store.Append(ctx, records...), errThrownAway)
		})
		if errors.Is(err, errThrownAway) {
			return false
		}
	default:
		err = w.inTx(ctx, store, func(ctx context.Context) error {
			for _, r := range records {
				if err := store.Append(ctx, r); err != nil {
					return err
				}
			}
			pause(ctx, rand.N(20*time.Millisecond))
			return nil
		})
	}
	w.failed("Append", err)
	return err == nil
}

// inTx runs do in a transaction, which commits if do returns no error.
func (w *stress) inTx(ctx context.Context, store outmill.Store, do func(ctx context.Context) error) error {
	if h, ok := w.e.Harness.(Transactor); ok {
		return h.InTx(ctx, store, do)
	}
	ctx, commit, rollback := w.e.Harness.Begin(store)
	if err := do(ctx); err != nil {
		return errors.Join(err, rollback())
	}
	return commit()
}
