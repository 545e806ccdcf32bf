package outmill_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestErrors(t *testing.T) {
	t.Parallel()

	t.Run("a PublishError", func(t *testing.T) {
		t.Parallel()
		err := fmt.Errorf("forward: %w", &storekit.PublishError{Total: 5, Failed: []storekit.FailedMessage{
			{Index: 1, MessageID: "m-1", Topic: "orders", Err: fmt.Errorf("%w: unknown", outmill.ErrTopicUnavailable)},
			{Index: 4, MessageID: "m-4", Topic: "bills", Err: outmill.Permanent(io.ErrShortWrite)},
		}})

		t.Run("is each of its messages' errors", func(t *testing.T) {
			t.Parallel()
			require.ErrorIs(t, err, outmill.ErrTopicUnavailable)
			require.ErrorIs(t, err, io.ErrShortWrite)
			require.NotErrorIs(t, err, outmill.ErrClosed)
			require.True(t, outmill.IsPermanent(err))
		})
		t.Run("can be had back to see which messages failed", func(t *testing.T) {
			t.Parallel()
			var failed *storekit.PublishError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, 5, failed.Total)
			require.Equal(t, 4, failed.Failed[1].Index)
			require.False(t, outmill.IsPermanent(failed.Failed[0].Err), "judged by itself, message 1 is not permanent")
		})
		t.Run("says how many, which, where to and why", func(t *testing.T) {
			t.Parallel()
			require.EqualError(t, errors.Unwrap(err),
				`outmill: 2 of 5 messages not published; message 1 (m-1) to "orders": `+
					`outmill: topic unavailable: unknown; message 4 (m-4) to "bills": short write`)
		})
	})

	t.Run("the text of a PublishError is bounded", func(t *testing.T) {
		t.Parallel()
		long := "x" + strings.Repeat("ü", 1<<20)
		err := &storekit.PublishError{Total: 10_000}
		for i := range 10_000 {
			err.Failed = append(err.Failed, storekit.FailedMessage{Index: i, MessageID: long, Topic: long, Err: errors.New(long)})
		}
		require.Less(t, len(err.Error()), 4000)
		require.True(t, utf8.ValidString(err.Error()), "nothing is cut inside a character")
		require.Contains(t, err.Error(), "message 2 ")
		require.NotContains(t, err.Error(), "message 3 ")
		require.True(t, strings.HasSuffix(err.Error(), "; …"))
	})

	t.Run("a PublishError with a missing cause does not panic", func(t *testing.T) {
		t.Parallel()
		err := &storekit.PublishError{Total: 1, Failed: []storekit.FailedMessage{{}}}
		require.NotEmpty(t, err.Error())
		require.NotErrorIs(t, err, io.EOF)
		require.False(t, outmill.IsPermanent(err))
	})

	t.Run("a cleaned error can be stored by every engine", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "", storekit.CleanError(""))
		require.Equal(t, "größe", storekit.CleanError("größe"))
		require.Equal(t, "a\uFFFDb", storekit.CleanError("a\x00b"))
		require.Equal(t, "ab", storekit.CleanError("a\xffb"))
		rapid.Check(t, func(t *rapid.T) {
			part := rapid.OneOf(
				rapid.String(),
				rapid.SampledFrom([]string{"\x00", "\xff", "ü", "漢", "😀"}),
				rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
			).Draw(t, "part")
			s := strings.Repeat(part, rapid.SampledFrom([]int{1, 100, 5000}).Draw(t, "times"))
			clean := storekit.CleanError(s)
			require.LessOrEqual(t, len(clean), storekit.MaxErrorLength)
			require.True(t, utf8.ValidString(clean))
			require.NotContains(t, clean, "\x00")
			require.Equal(t, clean, storekit.CleanError(clean))
			if utf8.ValidString(s) && !strings.Contains(s, "\x00") {
				require.True(t, strings.HasPrefix(s, clean))
				require.Greater(t, len(clean)+utf8.UTFMax, min(len(s), storekit.MaxErrorLength), "no more is cut than must be")
			}
		})
	})
}
