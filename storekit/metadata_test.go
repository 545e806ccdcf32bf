package storekit_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

var (
	due     = time.Date(2031, 2, 3, 4, 5, 6, 789, time.FixedZone("east", 7200))
	expires = due.Add(time.Hour)
)

func recordOf(t require.TestingT, msg *message.Message) *outmill.Record {
	rec, err := storekit.RecordOf("orders", msg)
	require.NoError(t, err)
	return rec
}

// told are instructions that were kept apart from a message.
func told(pairs ...string) map[outmill.Instruction]string {
	all := map[outmill.Instruction]string{}
	for i := 0; i < len(pairs); i += 2 {
		all[outmill.Instruction(pairs[i])] = pairs[i+1]
	}
	return all
}

func withMetadata(pairs ...string) *message.Message {
	msg := message.NewMessage("m-1", nil)
	for i := 0; i < len(pairs); i += 2 {
		msg.Metadata.Set(pairs[i], pairs[i+1])
	}
	return msg
}

func TestMetadata(t *testing.T) {
	t.Parallel()

	t.Run("each setter fills its column", func(t *testing.T) {
		t.Parallel()
		msg := message.NewMessage("m-1", []byte("payload"))
		outmill.SetKey(msg, "k")
		outmill.SetDueAt(msg, due)
		outmill.SetExpiresAt(msg, expires)
		outmill.SetTimeToLive(msg, 90*time.Second)
		outmill.SetDedupKey(msg, "d")
		outmill.SetCorrelationID(msg, "corr")
		outmill.SetCausationID(msg, "cause")
		outmill.SetTenantID(msg, "tenant")
		outmill.SetTrace(msg, "00-aa-bb-01", "vendor=1")
		msg.Metadata.Set("mine", "stays")

		rec := recordOf(t, msg)
		require.Equal(t, &outmill.Record{
			MessageID: "m-1", Topic: "orders", Key: "k", Payload: []byte("payload"),
			Metadata:      map[string]string{"mine": "stays"},
			CorrelationID: "corr", CausationID: "cause", TenantID: "tenant",
			TraceParent: "00-aa-bb-01", TraceState: "vendor=1",
			DueAt: due.UTC(), ExpiresAt: expires.UTC(), TimeToLive: 90 * time.Second, DedupKey: "d",
		}, rec)
	})

	t.Run("setters work on a message whose metadata is nil", func(t *testing.T) {
		t.Parallel()
		for name, set := range map[string]func(*message.Message){
			"SetKey":           func(m *message.Message) { outmill.SetKey(m, "x") },
			"SetDueAt":         func(m *message.Message) { outmill.SetDueAt(m, due) },
			"SetDelay":         func(m *message.Message) { outmill.SetDelay(m, time.Second) },
			"SetExpiresAt":     func(m *message.Message) { outmill.SetExpiresAt(m, expires) },
			"SetTimeToLive":    func(m *message.Message) { outmill.SetTimeToLive(m, time.Second) },
			"SetDedupKey":      func(m *message.Message) { outmill.SetDedupKey(m, "x") },
			"SetCorrelationID": func(m *message.Message) { outmill.SetCorrelationID(m, "x") },
			"SetCausationID":   func(m *message.Message) { outmill.SetCausationID(m, "x") },
			"SetTenantID":      func(m *message.Message) { outmill.SetTenantID(m, "x") },
			"SetOccurredAt":    func(m *message.Message) { outmill.SetOccurredAt(m, due) },
			"SetTrace":         func(m *message.Message) { outmill.SetTrace(m, "x", "") },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				msg := &message.Message{UUID: "m-1"}
				set(msg)
				require.Len(t, msg.Metadata, 1, "one entry: an empty tracestate is left out")
				recordOf(t, msg)
			})
		}
	})

	t.Run("the correlation id is Watermill's own", func(t *testing.T) {
		t.Parallel()
		msg := message.NewMessage("m-1", nil)
		middleware.SetCorrelationID("corr", msg)
		require.Equal(t, "corr", recordOf(t, msg).CorrelationID)
		require.Equal(t, "corr", middleware.MessageCorrelationID(storekit.MessageOf(recordOf(t, msg))))
	})

	t.Run("metadata that identify a message return and instructions do not", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			text := rapid.StringN(0, 20, -1)
			original := message.NewMessage(text.Draw(t, "uuid"), rapid.SliceOf(rapid.Byte()).Draw(t, "payload"))
			maps.Copy(original.Metadata, rapid.MapOf(text, text).Draw(t, "metadata"))
			for _, name := range []string{
				outmill.MetadataKey, outmill.MetadataCorrelationID, outmill.MetadataCausationID, outmill.MetadataTenantID,
				outmill.MetadataTraceParent, outmill.MetadataTraceState,
			} {
				if rapid.Bool().Draw(t, name) {
					original.Metadata.Set(name, rapid.StringN(1, 20, -1).Draw(t, name))
				}
			}
			want := maps.Clone(original.Metadata)
			outmill.SetDueAt(original, due)
			outmill.SetDelay(original, 5*time.Second)
			outmill.SetExpiresAt(original, expires)
			outmill.SetTimeToLive(original, 5*time.Second)
			outmill.SetDedupKey(original, "d")
			outmill.SetJoins(original, outmill.NewJoinID())
			outmill.SetWaitsFor(original, outmill.NewJoinID())
			before := original.Copy()

			rec := recordOf(t, original)
			require.True(t, before.Equals(original), "RecordOf does not change the message")
			for _, name := range instructions {
				require.NotContains(t, rec.Metadata, string(name))
			}

			back := storekit.MessageOf(rec)
			require.Equal(t, want, back.Metadata)
			require.Equal(t, original.Payload, back.Payload)
			if original.UUID != "" {
				require.Equal(t, original.UUID, back.UUID)
			}

			again := recordOf(t, back)
			require.Zero(t, again.ID, "published again, it is another work item: Append makes its id")
			require.Zero(t, again.DedupKey)
			require.True(t, again.DueAt.IsZero() && again.ExpiresAt.IsZero())
			require.Zero(t, again.Delay+again.TimeToLive)
		})
	})

	t.Run("Append makes the ids that a message does not have", func(t *testing.T) {
		t.Parallel()
		rec := recordOf(t, message.NewMessage("", nil))
		require.Zero(t, rec.ID)
		require.Empty(t, rec.MessageID)
	})

	t.Run("a nil message is refused", func(t *testing.T) {
		t.Parallel()
		_, err := storekit.RecordOf("orders", nil)
		require.ErrorIs(t, err, outmill.ErrInvalidRecord)
	})

	t.Run("a record without metadata makes a message whose metadata can be set", func(t *testing.T) {
		t.Parallel()
		msg := storekit.MessageOf(&outmill.Record{MessageID: "m-1", Key: "k"})
		msg.Metadata.Set("a", "b")
		require.Equal(t, message.Metadata{outmill.MetadataKey: "k", "a": "b"}, msg.Metadata)
	})

	t.Run("delays", func(t *testing.T) {
		t.Parallel()
		dueAt := due.Format(time.RFC3339Nano)
		const delayName, dueAtName = string(outmill.InstructionDelay), string(outmill.InstructionDueAt)
		for _, tc := range []struct {
			name  string
			told  map[outmill.Instruction]string
			delay time.Duration
			due   time.Time
		}{
			{name: "none at all"},
			{name: "a delay", told: told(delayName, "1m30s"), delay: 90 * time.Second},
			{name: "a delay below zero is none", told: told(delayName, "-1s")},
			{name: "a due time keeps its nanoseconds", told: told(dueAtName, dueAt), due: due},
			{name: "a delay wins over a due time", told: told(delayName, "1s", dueAtName, dueAt), delay: time.Second},
			{name: "a delay of zero wins too", told: told(delayName, "0s", dueAtName, dueAt)},
		} {
			t.Run(tc.name, func(t *testing.T) {
				t.Parallel()
				rec, err := storekit.RecordInstructed("orders", withMetadata(), tc.told)
				require.NoError(t, err)
				require.Equal(t, tc.delay, rec.Delay)
				require.True(t, tc.due.Equal(rec.DueAt), "due at %s", rec.DueAt)
			})
		}
	})

	t.Run("Watermill's delays, where the metadata is trusted", func(t *testing.T) {
		t.Parallel()
		dueAt := due.Format(time.RFC3339Nano)
		ours := func(set func(*message.Message), pairs ...string) *message.Message {
			msg := withMetadata(pairs...)
			set(msg)
			return msg
		}
		for _, tc := range []struct {
			name  string
			msg   *message.Message
			delay time.Duration
			due   time.Time
		}{
			{name: "for", msg: withMetadata(delay.DelayedForKey, "3s"), delay: 3 * time.Second},
			{name: "for below zero is none", msg: withMetadata(delay.DelayedForKey, "-3s")},
			{name: "until", msg: withMetadata(delay.DelayedUntilKey, dueAt), due: due},
			{name: "for wins over until, which has whole seconds only",
				msg: withMetadata(delay.DelayedForKey, "3s", delay.DelayedUntilKey, dueAt), delay: 3 * time.Second},
			{name: "our due time wins over for", due: due,
				msg: ours(func(m *message.Message) { outmill.SetDueAt(m, due) }, delay.DelayedForKey, "3s")},
			{name: "our delay wins over for", delay: time.Second,
				msg: ours(func(m *message.Message) { outmill.SetDelay(m, time.Second) }, delay.DelayedForKey, "3s")},
			{name: "our delay of zero wins over until",
				msg: ours(func(m *message.Message) { outmill.SetDelay(m, 0) }, delay.DelayedUntilKey, dueAt)},
		} {
			t.Run(tc.name, func(t *testing.T) {
				t.Parallel()
				rec, err := trusting(t, tc.msg)
				require.NoError(t, err)
				require.Equal(t, tc.delay, rec.Delay)
				require.True(t, tc.due.Equal(rec.DueAt), "due at %s", rec.DueAt)
				require.Empty(t, rec.Metadata)
			})
		}

		msg := withMetadata()
		delay.Message(msg, delay.For(1500*time.Millisecond))
		rec, err := trusting(t, msg)
		require.NoError(t, err)
		require.Equal(t, 1500*time.Millisecond, rec.Delay, "as Watermill writes it")

		past := withMetadata()
		delay.Message(past, delay.Until(time.Now().Add(-time.Hour)))
		rec, err = trusting(t, past)
		require.NoError(t, err)
		require.Zero(t, rec.Delay)
		require.True(t, rec.DueAt.IsZero())

		for _, name := range []string{delay.DelayedForKey, delay.DelayedUntilKey} {
			_, err := trusting(t, withMetadata(name, "tomorrow"))
			require.ErrorContains(t, err, name)
			require.ErrorIs(t, err, outmill.ErrInvalidRecord)
		}
	})

	t.Run("garbage in an instruction is refused with its name and the valid form", func(t *testing.T) {
		t.Parallel()
		for _, name := range instructions {
			if name == outmill.InstructionDedupKey {
				continue // any text is one
			}
			t.Run(string(name), func(t *testing.T) {
				t.Parallel()
				_, err := storekit.RecordInstructed("orders", withMetadata(), told(string(name), "tomorrow"))
				var invalid *outmill.InvalidRecordError
				require.ErrorAs(t, err, &invalid)
				require.Equal(t, -1, invalid.Index)
				require.Contains(t, invalid.Field, string(name))
				require.Contains(t, invalid.Reason, `"tomorrow"`)
				require.Contains(t, invalid.Reason, "want ")

				_, err = storekit.RecordInstructed("orders", withMetadata(), told(string(name), strings.Repeat("9", 1<<20)))
				require.Error(t, err)
				require.Less(t, len(err.Error()), 1000)
			})
		}
	})

	t.Run("a negative time to live reaches the check of the store", func(t *testing.T) {
		t.Parallel()
		msg := message.NewMessage("m-1", nil)
		outmill.SetTimeToLive(msg, -time.Second)
		err := storekit.CheckRecords([]*outmill.Record{recordOf(t, msg)}, 0)
		require.ErrorContains(t, err, "time to live is -1s: want 0 or more")
	})
}

var instructions = []outmill.Instruction{
	outmill.InstructionDueAt, outmill.InstructionDelay, outmill.InstructionExpiresAt, outmill.InstructionTimeToLive,
	outmill.InstructionDedupKey, outmill.InstructionJoins, outmill.InstructionWaitsFor,
}

// trusting makes the record of a publisher that honours Watermill's delays in the metadata.
func trusting(t *testing.T, msg *message.Message) (*outmill.Record, error) {
	maker, err := storekit.NewRecordMaker(true)
	require.NoError(t, err)
	made, err := maker.Of(t.Context(), "orders", []*message.Message{msg})
	return made[0], err
}

func FuzzRecordInstructed(f *testing.F) {
	f.Add("1s", "2031-01-01T00:00:00Z")
	f.Add("-1h", "0000-00-00T00:00:00Z")
	f.Add("9223372036s", "9999-12-31T23:59:59.999999999-14:00")
	f.Fuzz(func(t *testing.T, duration, moment string) {
		rec, err := storekit.RecordInstructed("orders", withMetadata(), told(
			string(outmill.InstructionDelay), duration, string(outmill.InstructionTimeToLive), duration,
			string(outmill.InstructionExpiresAt), moment))
		if err != nil {
			require.ErrorIs(t, err, outmill.ErrInvalidRecord)
			return
		}
		require.GreaterOrEqual(t, rec.Delay, time.Duration(0))
	})
}
