package memstore

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/memdriver"
	"github.com/outmill/outmill/storekit"
)

// Database has the records of the stores that share it, until the program ends. It is safe for concurrent use.
type Database struct {
	memory *memdriver.Database
	// delay is how late the database answers, and delayed how many transactions began late.
	delay, delayed atomic.Int64
}

// Tx is a transaction. Its changes become visible when it commits. It is safe for concurrent use.
type Tx = memdriver.Tx

// NewDatabase returns an empty database.
func NewDatabase() *Database { return &Database{memory: memdriver.New()} }

// Begin begins a transaction. End it with Commit or Rollback.
func (d *Database) Begin() *Tx { return d.memory.Begin() }

// Elapse moves the clock of the database forward by d, so that a test need not wait.
func (d *Database) Elapse(by time.Duration) { d.memory.Elapse(by) }

// Delay has each further transaction on the database begin only after that time, so that a test sees what a slow
// database does, or with an hour one that hangs. Most calls of a store are one or two transactions. A call whose
// context ends before returns the error of the context. 0, as at first, is no delay.
func (d *Database) Delay(by time.Duration) { d.delay.Store(int64(by)) }

// Delayed is how many transactions have been delayed so far.
func (d *Database) Delayed() int { return int(d.delayed.Load()) }

// errGuarded is the error of a unique index that a user has made.
var errGuarded = errors.New("another saga has the same value in a field that is unique")

// GuardSagas makes a field of the states of this type of sagas unique, as an index of a user does on other
// engines.
func (d *Database) GuardSagas(kind, field string) {
	value := func(e driver.Entry) string {
		ofKind, state := engine.SagaState(e)
		var fields map[string]json.RawMessage
		if ofKind != kind || json.Unmarshal(state, &fields) != nil {
			return ""
		}
		return string(fields[field])
	}
	d.memory.Guard(func(changed, other driver.Entry) error {
		if wanted := value(changed); wanted != "" && wanted == value(other) {
			return errGuarded
		}
		return nil
	})
}

// late is a driver that answers late.
type late struct {
	memdriver.Driver
	db *Database
}

// wait returns the error of a context that ends before the delay does.
func (l late) wait(ctx context.Context) error {
	by := time.Duration(l.db.delay.Load())
	if by <= 0 {
		return nil
	}
	l.db.delayed.Add(1)
	return storekit.Pause(ctx, by)
}

func (l late) View(ctx context.Context, begin driver.Begin, fn func(driver.Tx) error) error {
	return l.Update(ctx, begin, fn)
}

func (l late) Update(ctx context.Context, begin driver.Begin, fn func(driver.Tx) error) error {
	if err := l.wait(ctx); err != nil {
		return err
	}
	return l.Driver.Update(ctx, begin, fn)
}

func (l late) Within(ctx context.Context, tx any, fn func(driver.Tx) error) error {
	if err := l.wait(ctx); err != nil {
		return err
	}
	return l.Driver.Within(ctx, tx, fn)
}

func (l late) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	if err := l.wait(ctx); err != nil {
		return l.Explain(ctx, "transact", err)
	}
	return l.Driver.Transact(ctx, fn)
}

func (l late) Ensure(ctx context.Context) error {
	if err := l.wait(ctx); err != nil {
		return err
	}
	return l.Driver.Ensure(ctx)
}
