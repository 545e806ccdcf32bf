package kafka

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestJob(t *testing.T) {
	t.Parallel()

	t.Run("delivered messages do not fail with those whose result is unknown", func(t *testing.T) {
		t.Parallel()
		arrived, refused, unknown := &delivery{}, &delivery{}, &delivery{}
		j := newJob([]*delivery{arrived, refused, unknown})
		errRefused, errPending := errors.New("refused"), errors.New("pending")
		arrived.settle(nil)
		refused.settle(errRefused)
		require.Equal(t, []failure{failed(refused, errRefused), failed(unknown, errPending)}, j.failures(errPending))
		unknown.settle(nil)
		<-j.done
		require.Equal(t, []failure{failed(refused, errRefused)}, j.failures(nil))
	})

	t.Run("parts are a call cut within its bounds", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			maxRecords := rapid.IntRange(1, 10).Draw(t, "records")
			maxBytes := rapid.IntRange(1, 100).Draw(t, "bytes")
			var all, joined []*delivery
			for _, size := range rapid.SliceOfN(rapid.IntRange(0, 150), 0, 50).Draw(t, "sizes") {
				all = append(all, &delivery{size: size})
			}
			for _, part := range parts(all, maxRecords, maxBytes) {
				bytes := 0
				for _, d := range part {
					bytes += d.size
				}
				require.NotEmpty(t, part)
				require.LessOrEqual(t, len(part), maxRecords)
				require.True(t, bytes <= maxBytes || len(part) == 1, "%d bytes in %d records", bytes, len(part))
				joined = append(joined, part...)
			}
			require.Equal(t, all, joined)
		})
	})
}
