package outmill_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
)

// setters are those that give instructions.
var setters = map[outmill.Instruction]func(*message.Message){
	outmill.InstructionDueAt:      func(m *message.Message) { outmill.SetDueAt(m, time.Unix(0, 0)) },
	outmill.InstructionDelay:      func(m *message.Message) { outmill.SetDelay(m, time.Hour) },
	outmill.InstructionExpiresAt:  func(m *message.Message) { outmill.SetExpiresAt(m, time.Unix(0, 0)) },
	outmill.InstructionTimeToLive: func(m *message.Message) { outmill.SetTimeToLive(m, time.Hour) },
	outmill.InstructionDedupKey:   func(m *message.Message) { outmill.SetDedupKey(m, "k") },
	outmill.InstructionJoins:      func(m *message.Message) { outmill.SetJoins(m, outmill.JoinID{1}, outmill.JoinID{2}) },
	outmill.InstructionWaitsFor:   func(m *message.Message) { outmill.SetWaitsFor(m, outmill.JoinID{1}) },
}

var values = map[outmill.Instruction]string{
	outmill.InstructionDueAt:      "1970-01-01T00:00:00Z",
	outmill.InstructionDelay:      "1h0m0s",
	outmill.InstructionExpiresAt:  "1970-01-01T00:00:00Z",
	outmill.InstructionTimeToLive: "1h0m0s",
	outmill.InstructionDedupKey:   "k",
	outmill.InstructionJoins:      outmill.JoinID{1}.String() + "," + outmill.JoinID{2}.String(),
	outmill.InstructionWaitsFor:   outmill.JoinID{1}.String(),
}

func TestInstructions(t *testing.T) {
	t.Parallel()
	all := func(uuid string) *message.Message {
		msg := message.NewMessage(uuid, nil)
		for _, set := range setters {
			set(msg)
		}
		return msg
	}

	t.Run("survive what happens to a message before it is published", func(t *testing.T) {
		t.Parallel()
		for what, change := range map[string]func(*message.Message) *message.Message{
			"nothing": func(m *message.Message) *message.Message { return m },
			"another context": func(m *message.Message) *message.Message {
				m.SetContext(context.Background())
				return m
			},
			"Copy":            (*message.Message).Copy,
			"CopyWithContext": (*message.Message).CopyWithContext,
			"a new message with the UUID and the metadata, as in a decorator": func(m *message.Message) *message.Message {
				out := message.NewMessage(m.UUID, []byte("encrypted"))
				maps.Copy(out.Metadata, m.Metadata)
				return out
			},
			"other metadata": func(m *message.Message) *message.Message {
				m.Metadata.Set("correlation_id", "c")
				return m
			},
		} {
			for _, uuid := range []string{"m1", "", "a\xff\x00 outmill:b"} {
				told, err := outmill.InstructionsOf(change(all(uuid)))
				require.NoError(t, err, what)
				require.Equal(t, values, told, what)
			}
		}
	})

	t.Run("are none without a setter", func(t *testing.T) {
		t.Parallel()
		for name, value := range values {
			signed := all("m1").Metadata.Get(string(name))
			at := strings.LastIndex(signed, value) + len(value)
			flipped := []byte(signed)
			flipped[len(flipped)-1] ^= 1
			for what, forged := range map[string]string{
				"the value alone":        value,
				"an empty signature":     value + " outmill:",
				"a short signature":      value + " outmill:AAAA",
				"a guessed signature":    value + " outmill:" + strings.Repeat("A", 64),
				"no base64":              value + " outmill:%%%",
				"another value":          "x" + signed,
				"a changed signature":    string(flipped),
				"the signature alone":    signed[at:],
				"two signatures":         signed + signed[at:] + "A",
				"the signature cut":      signed[:len(signed)-1],
				"a signature in capital": value + strings.ToUpper(signed[at:]),
			} {
				msg := message.NewMessage("m1", nil)
				msg.Metadata.Set(string(name), forged)
				told, err := outmill.InstructionsOf(msg)
				require.NoError(t, err, what)
				require.Nil(t, told, "%s: %s", name, what)
			}
		}
	})

	t.Run("of one name are none of another", func(t *testing.T) {
		t.Parallel()
		msg := all("m1")
		for name := range values {
			for other := range values {
				if name == other {
					continue
				}
				moved := message.NewMessage("m1", nil)
				moved.Metadata.Set(string(other), msg.Metadata.Get(string(name)))
				told, err := outmill.InstructionsOf(moved)
				require.NoError(t, err)
				require.Nil(t, told)
			}
		}
	})

	t.Run("of a message with another UUID are an error that names the remedy", func(t *testing.T) {
		t.Parallel()
		for _, uuid := range []string{"m2", "", "m"} {
			msg := all("m1")
			msg.UUID = uuid
			told, err := outmill.InstructionsOf(msg)
			require.ErrorIs(t, err, outmill.ErrInvalidRecord)
			require.ErrorContains(t, err, `metadata "outmill_delay" was set while the message had the UUID "m1"`)
			require.ErrorContains(t, err, "set the UUID first")
			require.Equal(t, values, told)
			for _, set := range setters {
				set(msg)
			}
			_, err = outmill.InstructionsOf(msg)
			require.NoError(t, err, "the setters were called again")
		}
	})

	t.Run("keep any text", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z]* outmill:[A-Za-z0-9_-]*`))
			msg := message.NewMessage(text.Draw(t, "uuid"), nil)
			key := text.Draw(t, "key")
			outmill.SetDedupKey(msg, key)
			told, err := outmill.InstructionsOf(msg)
			require.NoError(t, err)
			require.Equal(t, map[outmill.Instruction]string{outmill.InstructionDedupKey: key}, told)
		})
	})

	t.Run("of no joins are none", func(t *testing.T) {
		t.Parallel()
		msg := all("m1")
		outmill.SetJoins(msg)
		told, err := outmill.InstructionsOf(msg)
		require.NoError(t, err)
		require.NotContains(t, told, outmill.InstructionJoins)
		outmill.SetJoins(&message.Message{})
	})
}

func FuzzInstructionsOf(f *testing.F) {
	msg := message.NewMessage("m1", nil)
	outmill.SetDelay(msg, time.Hour)
	f.Add("1h0m0s")
	f.Add(msg.Metadata.Get("outmill_delay") + "=")
	f.Add(" outmill:")
	f.Fuzz(func(t *testing.T, text string) {
		forged := message.NewMessage("m2", nil)
		forged.Metadata.Set("outmill_delay", text)
		if told, _ := outmill.InstructionsOf(forged); told != nil && text != msg.Metadata.Get("outmill_delay") {
			t.Fatalf("%q instructs", text)
		}
	})
}
