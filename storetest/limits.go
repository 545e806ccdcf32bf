package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

// textField is a text column and its limit in UTF-16 units.
type textField struct {
	name  string
	limit int
	set   func(*outmill.Record, string)
	get   func(*outmill.Record) string
	// trimmed fields refuse blanks at their ends.
	trimmed bool
}

func textFields() []textField {
	return []textField{
		{"topic", outmill.MaxTopicLength, func(r *outmill.Record, s string) { r.Topic = s }, func(r *outmill.Record) string {
			return r.Topic
		}, true},
		{"key", outmill.MaxTopicLength, func(r *outmill.Record, s string) { r.Key = s }, func(r *outmill.Record) string { return r.Key }, true},
		{"message id", outmill.MaxTextLength, func(r *outmill.Record, s string) { r.MessageID = s }, func(r *outmill.Record) string {
			return r.MessageID
		}, false},
		{"correlation id", outmill.MaxTextLength, func(r *outmill.Record, s string) { r.CorrelationID = s }, func(r *outmill.Record) string {
			return r.CorrelationID
		}, false},
		{"causation id", outmill.MaxTextLength, func(r *outmill.Record, s string) { r.CausationID = s }, func(r *outmill.Record) string {
			return r.CausationID
		}, false},
		{"tenant id", outmill.MaxTextLength, func(r *outmill.Record, s string) { r.TenantID = s }, func(r *outmill.Record) string {
			return r.TenantID
		}, false},
		{"traceparent", outmill.MaxTextLength, func(r *outmill.Record, s string) { r.TraceParent = s }, func(r *outmill.Record) string {
			return r.TraceParent
		}, false},
		{"tracestate", 4 * outmill.MaxTextLength, func(r *outmill.Record, s string) { r.TraceState = s }, func(r *outmill.Record) string {
			return r.TraceState
		}, false},
		{"dedup key", outmill.MaxTextLength, func(r *outmill.Record, s string) { r.DedupKey = s }, func(r *outmill.Record) string {
			return r.DedupKey
		}, true},
	}
}

func limitSentences() []sentence {
	list := []sentence{
		{"OBX-004 an empty topic is refused and nothing is written", func(e *env) {
			e.requireRefused(suite.Rec("", "m1"), "topic")
		}},
		{"a nil record is refused and nothing is written", func(e *env) {
			e.requireRefused(nil, "record")
		}},
		{"a negative delay is refused and nothing is written", func(e *env) {
			e.requireRefused(suite.Rec(orders, "m1", suite.WithDelay(-time.Nanosecond)), "delay")
		}},
		{"a negative time to live is refused and nothing is written", func(e *env) {
			e.requireRefused(suite.Rec(orders, "m1", suite.WithTTL(-time.Nanosecond)), "time to live")
		}},
		{"a due time or expiry outside the years 1 to 9999 is refused and nothing is written", func(e *env) {
			for _, year := range []int{0, 10_000} {
				far := time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC)
				e.requireRefused(suite.Rec(orders, "m1", withDue(far)), "due at")
				e.requireRefused(suite.Rec(orders, "m1", withExpiry(far)), "expires at")
			}
		}},
		{"metadata that is not text is refused and nothing is written", func(e *env) {
			for _, bad := range []string{"\xff", "a\x00b"} {
				e.requireRefused(suite.Rec(orders, "m1", func(r *outmill.Record) { r.Metadata = map[string]string{"name": bad} }), `metadata "name"`)
				e.requireRefused(suite.Rec(orders, "m1", func(r *outmill.Record) { r.Metadata = map[string]string{bad: "value"} }),
					fmt.Sprintf("metadata name %q", bad))
			}
		}},
		{"every violation of a call is in its error", everyViolationIsNamed},
	}
	for _, f := range textFields() {
		list = append(list, f.sentences()...)
	}
	return list
}

func (f textField) sentences() []sentence {
	number := map[string]string{"topic": "OBX-007 ", "correlation id": "OBX-009 "}[f.name]
	list := []sentence{
		{fmt.Sprintf("%sa %s of %d UTF-16 units is stored, of %d refused", number, f.name, f.limit, f.limit+1), f.checkLimit},
		{fmt.Sprintf("a %s with a NUL byte or that is not UTF-8 is refused and nothing is written", f.name), f.checkText},
	}
	if f.trimmed {
		list = append(list, sentence{fmt.Sprintf("a %s with a blank at an end is refused and nothing is written", f.name), f.checkBlanks})
	}
	return list
}

func (f textField) with(value string) *outmill.Record {
	r := suite.Rec(orders, "m1")
	f.set(r, value)
	return r
}

func (f textField) checkLimit(e *env) {
	for _, longest := range []string{
		strings.Repeat("x", f.limit),
		strings.Repeat("日", f.limit),
		strings.Repeat("😀", f.limit/2) + strings.Repeat("x", f.limit%2),
	} {
		r := f.with(longest)
		e.Append(r)
		require.Equal(e.T, longest, f.get(e.Get(r)))
		e.Delete(r)
		e.requireRefused(f.with(longest+"x"), f.name)
	}
	e.requireRefused(f.with(strings.Repeat("x", f.limit-1)+"😀"), f.name)
}

func (f textField) checkText(e *env) {
	for _, bad := range []string{"\x00", "a\x00", "a\xff", "\xed\xa0\x80", "\xc0\x80"} {
		e.requireRefused(f.with(bad), f.name)
	}
}

func (f textField) checkBlanks(e *env) {
	for _, bad := range []string{" a", "a ", "\ta", "a\n", " ", "a\u00a0", "\u3000a"} {
		e.requireRefused(f.with(bad), f.name)
	}
}

// requireRefused appends the record between two valid ones, and requires an error.
func (e *env) requireRefused(bad *outmill.Record, field string) {
	e.T.Helper()
	err := e.Store.Append(e.Ctx, suite.Rec(orders, "good"), bad, suite.Rec(orders, "good too"))
	require.ErrorIs(e.T, err, outmill.ErrInvalidRecord)
	var invalid *outmill.InvalidRecordError
	require.ErrorAs(e.T, err, &invalid)
	require.Equal(e.T, field, invalid.Field)
	require.Equal(e.T, 1, invalid.Index, "index of the record in the call")
	require.Empty(e.T, e.List(outmill.ListQuery{}), "written")
}

func everyViolationIsNamed(e *env) {
	err := e.Store.Append(e.Ctx,
		suite.Rec("", "m1", suite.WithKey(" ")),
		nil,
		suite.Rec(orders, "m2", suite.WithDelay(-1)))
	require.ErrorIs(e.T, err, outmill.ErrInvalidRecord)
	for _, want := range []string{"0: topic", "0: key", "1: record", "2: delay"} {
		require.ErrorContains(e.T, err, want)
	}
	require.Empty(e.T, e.List(outmill.ListQuery{}))
}
