package postgres

import (
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres/internal/driver"
	"github.com/outmill/outmill/storekit"
)

// Appender makes statements that append records, for code that sends its statements itself and
// shares neither a connection nor a transaction, such as watermill-sql's Publisher (see package
// watermillsql). If you have a transaction, use Store.Append, which reports duplicates and
// takes steps of joins. An Appender is safe for concurrent use.
type Appender struct {
	config Config
	query  string

	mu   sync.Mutex
	last time.Time
}

// NewAppender returns an Appender for the store of that Config. It uses Schema, TablePrefix,
// DedupWindow, MaxPayload and NotifyInterval. It does not connect. The schema must exist: see
// Store.Ensure.
func NewAppender(config Config) (*Appender, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.setDefaults()
	return &Appender{config: config, query: driver.AppendSQL(config.Schema, config.TablePrefix)}, nil
}

// Statement returns a statement, and its arguments, that appends the records in the transaction
// in which it is sent: all of them or none, to the groups that are registered for their topics.
// Any driver takes it. Its only row is the number of messages whose dedup key was not seen
// before. It needs the right EXECUTE on the function append.
//
// An invalid record is an outmill.ErrInvalidRecord, as it is for Store.Append. So is a record
// with joins, because a store must check joins before it writes, and one with an ID, because the
// database makes the ids. Statement does not change the
// records and keeps no reference to them, but the arguments contain the payloads. If they are
// printed, the arguments show neither payloads nor metadata.
//
// A statement notifies readers when it is committed, unless the one before was made less than
// NotifyInterval ago. Readers find those records by polling, or with the next notification.
func (a *Appender) Statement(records ...*outmill.Record) (query string, args []any, err error) {
	args, err = a.arguments(records)
	if err != nil {
		return "", nil, fmt.Errorf("outmill/postgres: statement: %w", err)
	}
	return a.query, args, nil
}

func (a *Appender) arguments(records []*outmill.Record) ([]any, error) {
	if err := errors.Join(storekit.CheckRecords(records, a.config.MaxPayload), appendable(records)); err != nil {
		return nil, err
	}
	limits := driver.AppendLimits()
	metadata, err := storekit.NewAppending(records).Metadata(limits.Check)
	if err != nil {
		return nil, err
	}
	weight := int64(0)
	for i, r := range records {
		weight += limits.Weight(r, metadata[i])
	}
	if weight > driver.MaxStatement {
		return nil, &outmill.InvalidRecordError{Index: -1, Field: "payload", Reason: fmt.Sprintf("of all records of the call makes a "+
			"statement of %d bytes: PostgreSQL takes at most %d; append them in several calls", weight, driver.MaxStatement)}
	}
	args := driver.AppendArgs(records, metadata, func(text string) any { return unprinted{text} })
	return append(args, a.config.DedupWindow.Microseconds(), a.notifies()), nil
}

func appendable(records []*outmill.Record) error {
	var errs []error
	for i, r := range records {
		if r != nil && (len(r.Joins) > 0 || !r.WaitsFor.IsZero()) {
			errs = append(errs, &outmill.InvalidRecordError{Index: i, Field: "joins",
				Reason: "cannot be checked by a statement alone: publish records with joins with package publisher"})
		}
		if r != nil && !r.ID.IsZero() {
			errs = append(errs, &outmill.InvalidRecordError{Index: i, Field: "id",
				Reason: "is made by the database: want none, or use Store.Append"})
		}
	}
	return errors.Join(errs...)
}

// notifies reports whether a statement notifies readers. Not all do, because PostgreSQL commits
// transactions that notify one after the other.
func (a *Appender) notifies() bool {
	if a.config.NotifyInterval < 0 {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := time.Now(); a.last.IsZero() || now.Sub(a.last) >= a.config.NotifyInterval {
		a.last = now
		return true
	}
	return false
}

// unprinted is an argument that drivers can read and that loggers do not show.
type unprinted struct{ text string }

// Value implements sqldriver.Valuer.
func (u unprinted) Value() (sqldriver.Value, error) { return u.text, nil }

// Format implements fmt.Formatter.
func (u unprinted) Format(to fmt.State, _ rune) { _, _ = fmt.Fprintf(to, "(%d bytes)", len(u.text)) }
