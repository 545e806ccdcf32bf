package storetest

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// clockSentences require that the clock of the database decides. If Elapse of the Harness
// moves that clock, a store with another clock behaves differently. Otherwise the values that
// the store sends show which clock it uses.
func clockSentences() []sentence {
	return []sentence{
		{"delays and times to live count by the database's clock", delaysByTheClock},
		{"leases and retries end by the database's clock", leasesByTheClock},
		{"registrations end by the database's clock", registrationsByTheClock},
		{"no call sends the time of its process", sendsNoTime},
	}
}

func delaysByTheClock(e *env) {
	e.Elapse(time.Hour)
	e.Filled(suite.Rec(orders, "delayed", suite.WithDelay(30*time.Minute)), suite.Rec(orders, "m1", suite.WithTTL(30*time.Minute)))
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.Elapse(31 * time.Minute)
	e.ClaimOne(outmill.NewOwnerToken(), "delayed")
}

func leasesByTheClock(e *env) {
	e.Elapse(time.Hour)
	e.Filled(suite.Rec(orders, "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	require.Empty(e.T, e.ClaimAll())
	e.Abandon(30*time.Minute, r)
	require.Empty(e.T, e.ClaimAll())
	e.Elapse(31 * time.Minute)
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.Elapse(leaseOf + time.Second)
	require.Equal(e.T, 1, e.Reap(10))
}

func registrationsByTheClock(e *env) {
	e.Elapse(time.Hour)
	e.RegisterAs(suite.Ends(group, 30*time.Minute))
	e.RequireExpired(0, 0)
	e.Elapse(31 * time.Minute)
	e.RequireExpired(1, 0)
}

func sendsNoTime(e *env) {
	wired, sent := e.Tap()
	e = &env{wired}
	e.RegisterAs(suite.Ends(group, time.Hour))
	// Times that the store read from the database before are older than the window.
	w := window{since: time.Now()}
	e.Append(suite.Rec(orders, "m1", suite.WithKey("k"), suite.WithDedup("d"), suite.WithTTL(time.Hour)),
		suite.Rec(orders, "delayed", suite.WithDelay(time.Hour)))
	e.Abandon(time.Minute, e.ClaimOne(outmill.NewOwnerToken(), "m1"))
	e.Append(suite.Recs(orders, suite.Plain, "a", "b", "c", "d")...)
	got := e.ClaimNamed(outmill.NewOwnerToken())
	_, err := e.Store.Extend(e.Ctx, time.Hour, suite.Leases([]*outmill.Record{got["a"]}))
	require.NoError(e.T, err)
	e.Snooze(time.Minute, got["a"])
	e.Release(got["b"])
	e.Fail(got["c"])
	e.Ack(got["d"])
	e.Reap(10)
	e.Requeue(got["c"])
	e.Expire(10)
	for _, method := range []func() error{
		func() error { _, err := e.Store.DeleteProcessed(e.Ctx, 10); return err },
		func() error { _, err := e.Store.ExpireDue(e.Ctx, 10); return err },
		func() error { _, err := e.Store.DeleteDedupKeys(e.Ctx, 10); return err },
		func() error { _, err := e.Store.Stats(e.Ctx, 10); return err },
	} {
		require.NoError(e.T, method())
	}
	require.NotEmpty(e.T, sent(), "nothing was noted")
	for _, trip := range sent() {
		for _, value := range trip {
			w.requireNone(e, reflect.ValueOf(value))
		}
	}
}

// number matches the parts of a text that may be times.
var number = regexp.MustCompile(`\b\d{10,19}\b|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d`)

// window is the time from the start of a sentence to the end of the longest duration in it.
type window struct{ since time.Time }

func (w window) has(t time.Time) bool {
	return !t.Before(w.since) && t.Before(w.since.Add(2*time.Hour))
}

// requireNone requires that neither the value nor its elements contain a time within the window.
func (w window) requireNone(e *env, v reflect.Value) {
	e.T.Helper()
	if !v.IsValid() {
		return
	}
	if t, ok := v.Interface().(time.Time); ok {
		require.False(e.T, w.has(t), "the time %s is sent", t)
		return
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		w.requireNone(e, v.Elem())
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			w.requireNone(e, v.Index(i))
		}
	case reflect.String:
		for _, text := range number.FindAllString(v.String(), -1) {
			require.False(e.T, w.hasText(text), "the time %s is sent", text)
		}
	case reflect.Int64:
		require.False(e.T, w.hasText(strconv.FormatInt(v.Int(), 10)), "the time %d is sent", v.Int())
	default:
	}
}

// hasText reports whether the text is a time within the window: a date, or a number of seconds,
// milliseconds, microseconds or nanoseconds.
func (w window) hasText(text string) bool {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return w.has(time.Unix(n, 0)) || w.has(time.UnixMilli(n)) || w.has(time.UnixMicro(n)) || w.has(time.Unix(0, n))
	}
	t, err := time.Parse("2006-01-02T15:04:05", strings.Replace(text, " ", "T", 1))
	return err == nil && w.has(t)
}
