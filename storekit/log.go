package storekit

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
)

// LogWith returns a logger that writes these fields on each line. LogWith and the logger's With
// replace a field that it has from them already; Watermill's adapter of slog would write both. Fields
// that are given with a single line replace nothing: use With for those that the logger may have. A
// nil logger logs nothing. The logger is safe for concurrent use if the given one is.
func LogWith(logger watermill.LoggerAdapter, fields watermill.LogFields) watermill.LoggerAdapter {
	if outmill.IsNil(logger) {
		return watermill.NopLogger{}
	}
	if l, ok := logger.(fieldLogger); ok {
		return l.With(fields)
	}
	return fieldLogger{base: logger}.With(fields)
}

// fieldLogger embeds the logger with the fields, because a logger that names the source of a line
// would otherwise name this file.
type fieldLogger struct {
	watermill.LoggerAdapter
	// base has none of the fields.
	base   watermill.LoggerAdapter
	fields watermill.LogFields
}

func (l fieldLogger) With(fields watermill.LogFields) watermill.LoggerAdapter {
	all := l.fields.Add(fields)
	logger := l.base.With(all)
	if _, off := logger.(watermill.NopLogger); off {
		return logger
	}
	return fieldLogger{logger, l.base, all}
}

// Log is the logger of a store. All stores write the same lines with it, each with the
// store's name: one line for each call that appends, claims or reaps. It is safe for
// concurrent use.
type Log struct {
	watermill.LoggerAdapter
	// off says that the logger logs nothing, so that no line needs to be made.
	off     bool
	appends slog.Level
	otherTx sync.Once
}

// NewLog makes the log of a store. appends is the level of the lines about appends; nil is
// slog.LevelDebug, because a service appends as often as it handles a request. A nil logger
// logs nothing.
func NewLog(logger watermill.LoggerAdapter, store string, appends slog.Leveler) *Log {
	logger = LogWith(logger, watermill.LogFields{"store": store})
	_, off := logger.(watermill.NopLogger)
	if appends == nil {
		appends = slog.LevelDebug
	}
	return &Log{LoggerAdapter: logger, off: off, appends: appends.Level()}
}

// Appended logs one call that appended records, or skipped them as duplicates.
// inTransaction says that the transaction is the caller's, and not committed yet.
func (l *Log) Appended(inTransaction bool, records ...*outmill.Record) {
	if l.off || len(records) == 0 {
		return
	}
	var topics, correlations firstFew
	duplicates := 0
	for _, r := range records {
		topics.add(r.Topic)
		correlations.add(r.CorrelationID)
		if r.Duplicate {
			duplicates++
		}
	}
	fields := watermill.LogFields{"count": len(records) - duplicates, "topic": topics.text()}
	if len(correlations) > 0 {
		fields["correlation_id"] = correlations.text()
	}
	if len(records) == 1 {
		fields["message_uuid"] = records[0].MessageID
	}
	if duplicates > 0 {
		fields["duplicates"] = duplicates
	}
	if inTransaction {
		fields["in_transaction"] = true
	}
	l.at(l.appends)("Records appended", fields)
}

func (l *Log) at(level slog.Level) func(msg string, fields watermill.LogFields) {
	switch {
	case level >= slog.LevelInfo:
		return l.Info
	case level >= slog.LevelDebug:
		return l.Debug
	}
	return l.Trace
}

// Claimed logs a claim that found n records, unless n is 0.
func (l *Log) Claimed(req outmill.ClaimRequest, n int) {
	if l.off || n == 0 {
		return
	}
	l.Debug("Records claimed", watermill.LogFields{"count": n, "group": req.Group, "owner": req.Owner.String()})
}

// Reaped logs n expired leases, unless n is 0.
func (l *Log) Reaped(n int) {
	if l.off || n == 0 {
		return
	}
	l.Info("Expired leases were reaped", watermill.LogFields{"count": n})
}

// Undelivered logs that a record is dead because no reader can handle it, which no handler and no OnDead learns.
func (l *Log) Undelivered(id outmill.WorkItemID, group, topic, reason string) {
	l.Error("A record was not delivered and is dead; edit and requeue it, or delete it", errors.New(reason),
		watermill.LogFields{"work_item_id": id.String(), "group": group, "topic": topic})
}

// firstFew has the first few distinct texts, and … for the others.
type firstFew []string

const few = 10

func (s *firstFew) add(text string) {
	switch {
	case text == "" || len(*s) > few || slices.Contains(*s, text):
	case len(*s) == few:
		*s = append(*s, "…")
	default:
		*s = append(*s, text)
	}
}

func (s firstFew) text() string { return strings.Join(s, ",") }
