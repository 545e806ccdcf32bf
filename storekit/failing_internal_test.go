package storekit

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

// ticking is a log whose clock the test moves.
func ticking() (log *CallLog, pass func(time.Duration)) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	return &CallLog{clock: func() time.Time { return now }}, func(d time.Duration) { now = now.Add(d) }
}

func TestCallLog(t *testing.T) {
	t.Parallel()
	away := errors.New("away")

	t.Run("a call that fails again and again has the begin of the first failure, their number and the last error", func(t *testing.T) {
		t.Parallel()
		log, pass := ticking()
		began := log.now().Add(-3 * time.Second)
		log.Note(t.Context(), CallClaim, "", began, away)
		pass(time.Hour)
		log.Note(t.Context(), CallClaim, "", log.now(), errors.New("refused"))
		require.Equal(t, []outmill.FailingCall{{Call: CallClaim, Since: began, Times: 2, Err: "refused"}}, log.FailingCalls())
	})

	t.Run("a success ends the failing of its call and part, and of no other", func(t *testing.T) {
		t.Parallel()
		log, pass := ticking()
		log.Note(t.Context(), CallSettle, "ack", time.Time{}, away)
		pass(time.Second)
		log.Note(t.Context(), CallSettle, "fail", time.Time{}, away)
		log.Note(t.Context(), CallSettle, "ack", time.Time{}, nil)
		failing := log.FailingCalls()
		require.Len(t, failing, 1)
		require.Equal(t, "fail", failing[0].Part)
		log.Note(t.Context(), CallSettle, "fail", time.Time{}, nil)
		require.Empty(t, log.FailingCalls())
		log.Note(t.Context(), CallSettle, "fail", time.Time{}, away)
		require.Equal(t, 1, log.FailingCalls()[0].Times, "it counts from the last success")
	})

	t.Run("the end of the caller, or of the store, is no failure of the call", func(t *testing.T) {
		t.Parallel()
		log, _ := ticking()
		ended, end := context.WithCancel(t.Context())
		end()
		log.Note(ended, CallClaim, "", time.Time{}, away)
		log.Note(t.Context(), CallClaim, "", time.Time{}, outmill.ErrClosed)
		require.Empty(t, log.FailingCalls())
	})

	t.Run("outcomes and extensions that nobody tries any more do not count, and other calls do", func(t *testing.T) {
		t.Parallel()
		log, pass := ticking()
		for _, call := range []string{CallSettle, CallExtend, CallUpkeep} {
			log.Note(t.Context(), call, "", time.Time{}, away)
		}
		pass(forgottenAfter)
		require.Len(t, log.FailingCalls(), 3)
		pass(time.Second)
		failing := log.FailingCalls()
		require.Len(t, failing, 1)
		require.Equal(t, CallUpkeep, failing[0].Call)
	})

	t.Run("an error of some of several stores is none of the set", func(t *testing.T) {
		t.Parallel()
		log, _ := ticking()
		log.Note(t.Context(), CallUpkeep, "", time.Time{}, &PartialError{Failed: map[string]error{"a": away}, Asked: 2})
		require.Empty(t, log.FailingCalls())
		log.Note(t.Context(), CallUpkeep, "", time.Time{}, &PartialError{Failed: map[string]error{"a": away}, Asked: 1})
		require.Len(t, log.FailingCalls(), 1)
	})
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"dial postgres://app:hunter2@db:5432/shop: refused":           "dial postgres://app:xxxxx@db:5432/shop: refused",
		`cannot parse "postgres://app:hunter2@db": no`:                `cannot parse "postgres://app:xxxxx@db": no`,
		"cannot parse `user=app password=hunter2 host=db`: no":        "cannot parse `user=app password=xxxxx host=db`: no",
		`login failed: {"token": "hunter2"}`:                          `login failed: {"token": xxxxx}`,
		"login failed, Password: 'hunter2 and more', again":           "login failed, Password: xxxxx, again",
		"ERROR: relation \"outmill_workers\" does not exist (42P01)":  "ERROR: relation \"outmill_workers\" does not exist (42P01)",
		"dup key: { token_id: 7 }, the driver says: no\x00 \xff such": "dup key: { token_id: 7 }, the driver says: no\uFFFD \uFFFD such",
	} {
		require.Equal(t, want, ErrorText(errors.New(text)))
	}
	require.Empty(t, ErrorText(nil))
	require.LessOrEqual(t, len(ErrorText(errors.New(string(make([]byte, 1000))))), 3*maxErrorText)
}
