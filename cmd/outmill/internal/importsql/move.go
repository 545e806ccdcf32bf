package importsql

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Waiting counts the committed messages that wait to be moved.
func Waiting(ctx context.Context, db *sql.DB, o Options) (int, error) {
	m, err := find(ctx, db, o)
	if err != nil {
		return 0, err
	}
	return m.waiting(ctx, db)
}

// Result counts the messages of a move.
type Result struct {
	// Moved were appended to the store.
	Moved int
	// Known were in the store from an earlier move.
	Known int
}

// Move moves all messages that wait, and calls progress after each step. With an error, the
// result has what was moved before; a repeated move goes on there. A row that cannot be
// moved stops the move in front of it.
func Move(ctx context.Context, db *sql.DB, o Options, store outmill.Writer, progress func(Result)) (result Result, err error) {
	m, err := find(ctx, db, o)
	if err != nil {
		return result, err
	}
	if err := m.prepare(ctx, db); err != nil {
		return result, err
	}
	for last := time.Now(); ; {
		n, err := m.step(ctx, db, store, &result)
		if err != nil {
			return result, err
		}
		if n > 0 {
			last = time.Now()
			progress(result)
			continue
		}
		left, err := m.waiting(ctx, db)
		if err != nil || left == 0 {
			return result, err
		}
		if time.Since(last) >= m.Wait {
			return result, fmt.Errorf("%d committed messages wait until older transactions of the server end: end those, or run it again later",
				left)
		}
		if err := pause(ctx, lookAgain); err != nil {
			return result, err
		}
	}
}

// lookAgain is the pause between two looks at rows that wait for older transactions.
const lookAgain = 50 * time.Millisecond

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// step moves one batch and returns the number of its rows.
func (m move) step(ctx context.Context, db *sql.DB, store outmill.Writer, result *Result) (n int, err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: m.level()})
	if err != nil {
		return 0, err
	}
	// After the commit it does nothing.
	defer func() { _ = tx.Rollback() }()
	rows, err := m.next(ctx, tx)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	records, good, refused := m.records(rows)
	if len(good) > 0 {
		if err := store.Append(ctx, records...); err != nil {
			return 0, err
		}
		if err := m.done(ctx, tx, good); err != nil {
			return 0, err
		}
		if err := tx.Commit(); err != nil {
			return 0, err
		}
		for _, r := range records {
			if r.Duplicate {
				result.Known++
			} else {
				result.Moved++
			}
		}
	}
	return len(good), refused
}

// records makes the records of the rows up to the first that cannot be moved.
func (m move) records(rows []row) (records []*outmill.Record, good []row, refused error) {
	for i, r := range rows {
		record, err := m.record(r)
		if err != nil {
			return records, rows[:i], fmt.Errorf("the row with the offset %d and the uuid %.60q of %s %w; "+
				"repair or delete the row, then run it again", r.offset, r.uuid, m.name(), err)
		}
		records = append(records, record)
	}
	return records, rows, nil
}

// record never repeats an error of encoding/json, which shows pieces of the payload.
func (m move) record(r row) (*outmill.Record, error) {
	msg := message.NewMessage(r.uuid, r.payload)
	if len(r.metadata) > 0 && json.Unmarshal(r.metadata, &msg.Metadata) != nil {
		return nil, errors.New("has metadata that are no JSON object of texts")
	}
	if msg.Metadata == nil {
		msg.Metadata = message.Metadata{}
	}
	topic := m.As
	if topic == "" {
		topic = m.Topic
	}
	if m.Enveloped {
		var err error
		if topic, msg, err = unwrap(msg); err != nil {
			return nil, err
		}
	}
	if key := msg.Metadata[m.KeyFrom]; m.KeyFrom != "" && key != "" && msg.Metadata[outmill.MetadataKey] == "" {
		outmill.SetKey(msg, key)
	}
	if err := m.Delays.apply(msg); err != nil {
		return nil, err
	}
	// The uuid alone would not do: a service may publish one message twice.
	outmill.SetDedupKey(msg, fmt.Sprintf("watermill-sql/%s/%d/%s", m.Topic, r.offset, r.uuid))
	record, err := storekit.RecordOf(topic, msg)
	if err != nil {
		return nil, fmt.Errorf("makes no record: %w", err)
	}
	return record, nil
}

// apply gives the message the delay of its metadata, or refuses the message. The delay counts from
// the publish, not from the move, so it is the time until which the message waits.
func (d Delays) apply(msg *message.Message) error {
	text := msg.Metadata[delay.DelayedUntilKey]
	if text == "" || d == DelaysIgnored {
		return nil
	}
	until, err := time.Parse(time.RFC3339, text)
	switch {
	case err != nil && d == DelaysKept:
		return fmt.Errorf("has the delay %s=%.60q in its metadata: want a time such as 2006-01-02T15:04:05Z", delay.DelayedUntilKey, text)
	case d == DelaysKept:
		delete(msg.Metadata, delay.DelayedForKey)
		delete(msg.Metadata, delay.DelayedUntilKey)
		outmill.SetDueAt(msg, until)
	case err == nil && until.After(time.Now()):
		return fmt.Errorf("has Watermill's delay until %s in its metadata: pass --delays keep if only your own programs set delays, "+
			"or --delays ignore to have it due at once, as for a subscriber of a table without delays", until.UTC().Format(time.RFC3339))
	}
	return nil
}

// envelope is what the publisher of Watermill's forwarder component puts around a message.
type envelope struct {
	DestinationTopic string            `json:"destination_topic"`
	UUID             string            `json:"uuid"`
	Payload          []byte            `json:"payload"`
	Metadata         map[string]string `json:"metadata"`
}

func unwrap(msg *message.Message) (topic string, inner *message.Message, err error) {
	var e envelope
	if json.Unmarshal(msg.Payload, &e) != nil || e.DestinationTopic == "" {
		return "", nil, errors.New("is no envelope of Watermill's forwarder: leave out --enveloped")
	}
	inner = message.NewMessage(e.UUID, e.Payload)
	if e.Metadata != nil {
		inner.Metadata = e.Metadata
	}
	return e.DestinationTopic, inner, nil
}
