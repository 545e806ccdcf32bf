package storekit_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/storekit"
)

func record(topic, name, correlation string) *outmill.Record {
	return &outmill.Record{Topic: topic, MessageID: name, CorrelationID: correlation, Payload: []byte("secret"),
		Metadata: map[string]string{"card": "secret"}}
}

// fieldsOf returns the fields of the only line at this level.
func fieldsOf(t *testing.T, capture *journal.Journal, level watermill.LogLevel, msg string) watermill.LogFields {
	t.Helper()
	lines := capture.Lines()
	require.Len(t, lines, 1)
	require.Equal(t, level, lines[0].Level)
	require.Equal(t, msg, lines[0].Msg)
	return lines[0].Fields
}

func TestLog(t *testing.T) {
	t.Parallel()

	t.Run("a line describes the appended records", func(t *testing.T) {
		t.Parallel()
		duplicate := record("orders", "m2", "c1")
		duplicate.Duplicate = true
		var many []*outmill.Record
		for i := range 12 {
			many = append(many, record(fmt.Sprintf("t%02d", i), "m", fmt.Sprintf("c%02d", i)))
		}
		for name, c := range map[string]struct {
			inTransaction bool
			records       []*outmill.Record
			want          watermill.LogFields
		}{
			"one": {false, []*outmill.Record{record("orders", "m1", "c1")},
				watermill.LogFields{"count": 1, "topic": "orders", "correlation_id": "c1", "message_uuid": "m1"}},
			"no correlation": {false, []*outmill.Record{record("orders", "m1", "")},
				watermill.LogFields{"count": 1, "topic": "orders", "message_uuid": "m1"}},
			"a duplicate": {false, []*outmill.Record{duplicate},
				watermill.LogFields{"count": 0, "topic": "orders", "correlation_id": "c1", "message_uuid": "m2", "duplicates": 1}},
			"several": {
				true, []*outmill.Record{record("orders", "m1", "c1"), duplicate, record("mails", "m3", ""), record("orders", "m4", "c2")},
				watermill.LogFields{"count": 3, "topic": "orders,mails", "correlation_id": "c1,c2", "duplicates": 1, "in_transaction": true},
			},
			"many": {false, many, watermill.LogFields{
				"count": 12, "topic": "t00,t01,t02,t03,t04,t05,t06,t07,t08,t09,…", "correlation_id": "c00,c01,c02,c03,c04,c05,c06,c07,c08,c09,…",
			}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				capture := journal.New()
				storekit.NewLog(capture, "shop", nil).Appended(c.inTransaction, c.records...)
				c.want["store"] = "shop"
				require.Equal(t, c.want, fieldsOf(t, capture, watermill.DebugLogLevel, "Records appended"))
			})
		}
	})

	t.Run("the level of appends is that of the setting", func(t *testing.T) {
		t.Parallel()
		for level, want := range map[slog.Level]watermill.LogLevel{
			slog.LevelInfo: watermill.InfoLogLevel, slog.LevelInfo - 1: watermill.DebugLogLevel, slog.LevelDebug: watermill.DebugLogLevel,
			slog.LevelDebug - 1: watermill.TraceLogLevel, watermill.LevelTrace: watermill.TraceLogLevel,
		} {
			capture := journal.New()
			storekit.NewLog(capture, "shop", level).Appended(false, record("orders", "m1", ""))
			fieldsOf(t, capture, want, "Records appended")
		}
	})

	t.Run("claims and reaps that found something are logged", func(t *testing.T) {
		t.Parallel()
		owner := outmill.NewOwnerToken()
		capture := journal.New()
		log := storekit.NewLog(capture, "shop", nil)
		log.Claimed(outmill.ClaimRequest{Group: "g", Owner: owner}, 0)
		log.Claimed(outmill.ClaimRequest{Group: "g", Owner: owner}, 3)
		require.Equal(t, watermill.LogFields{"store": "shop", "count": 3, "group": "g", "owner": owner.String()},
			fieldsOf(t, capture, watermill.DebugLogLevel, "Records claimed"))

		capture = journal.New()
		log = storekit.NewLog(capture, "shop", nil)
		log.Reaped(0)
		log.Reaped(2)
		require.Equal(t, watermill.LogFields{"store": "shop", "count": 2},
			fieldsOf(t, capture, watermill.InfoLogLevel, "Expired leases were reaped"))
	})
}

func TestLogWith(t *testing.T) {
	t.Parallel()

	t.Run("a line has the last value of each field, once", func(t *testing.T) {
		t.Parallel()
		var text bytes.Buffer
		slogger := watermill.NewSlogLogger(slog.New(slog.NewTextHandler(&text, nil)))
		outer := storekit.LogWith(slogger, watermill.LogFields{"store": "set"})
		for _, inner := range []watermill.LoggerAdapter{
			outer.With(watermill.LogFields{"store": "ada"}), storekit.LogWith(outer, watermill.LogFields{"store": "ada"}),
		} {
			text.Reset()
			inner.Info("told", nil)
			require.Regexp(t, `^time=\S+ level=INFO msg=told store=ada\n$`, text.String())
		}
		text.Reset()
		outer.Info("told", nil)
		require.Regexp(t, `^time=\S+ level=INFO msg=told store=set\n$`, text.String())
	})

	t.Run("a line names the file that wrote it", func(t *testing.T) {
		t.Parallel()
		var text bytes.Buffer
		log := storekit.LogWith(watermill.NewStdLoggerWithOut(&text, false, false), watermill.LogFields{"store": "shop"})
		log.With(watermill.LogFields{"store": "ada"}).Info("told", nil)
		require.Contains(t, text.String(), " log_test.go:")
	})

	t.Run("a logger that logs nothing stays one", func(t *testing.T) {
		t.Parallel()
		for _, logger := range []watermill.LoggerAdapter{nil, watermill.NopLogger{}, (*watermill.StdLoggerAdapter)(nil)} {
			require.Equal(t, watermill.NopLogger{}, storekit.LogWith(logger, watermill.LogFields{"store": "shop"}))
		}
	})
}

func TestLog_Serial(t *testing.T) {
	t.Run("nothing is made for a logger that logs nothing", func(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts those of all
		records := []*outmill.Record{record("orders", "m1", "c1"), record("orders", "m2", "c2")}
		for _, logger := range []watermill.LoggerAdapter{nil, watermill.NopLogger{}, (*watermill.StdLoggerAdapter)(nil)} {
			log := storekit.NewLog(logger, "shop", nil)
			require.Zero(t, testing.AllocsPerRun(10, func() {
				log.Appended(true, records...)
				log.Claimed(outmill.ClaimRequest{Group: "g"}, 1)
				log.Reaped(1)
			}))
		}
	})
}
