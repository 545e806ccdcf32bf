package janitor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/janitor"
	"github.com/outmill/outmill/sqlite"
)

// longest is what a writer of one record may wait for a batch of a janitor, even on a busy machine. It
// may wait longer where everything is slower: a writer that waits for the whole backlog waits for all
// of the time.
const longest = 10 * time.Second

func TestJanitor_Writers(t *testing.T) {
	t.Parallel()

	t.Run("writers go on between the batches on SQLite, in this process and in another one", func(t *testing.T) {
		t.Parallel()
		const notes, batch = 2000, 100
		for name, writer := range map[string]func(r *rig) *sqlite.Store{
			"in this process":    func(r *rig) *sqlite.Store { return r.store },
			"in another process": func(r *rig) *sqlite.Store { return r.open() },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.backlog(notes)
				writes, written, slowest := writer(r), 0, time.Duration(0)
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan janitor.Report, 1)
				j := newJanitor(t, r.store, janitor.Config{BatchSize: batch})
				began := time.Now()
				go func() {
					defer stop()
					report, err := j.RunOnce(t.Context())
					if err != nil {
						t.Error(err)
					}
					ended <- report
				}()
				for ctx.Err() == nil {
					began := time.Now()
					require.NoError(t, writes.Append(t.Context(), &outmill.Record{Topic: topic}))
					slowest = max(slowest, time.Since(began))
					written++
				}
				require.Equal(t, notes, (<-ended).Notes)
				took := time.Since(began)
				t.Logf("%d batches in %s; %d appends between them, the slowest of %s", notes/batch, took.Round(time.Millisecond),
					written, slowest.Round(time.Microsecond))
				require.Less(t, slowest, max(longest, took/2))
				require.Greater(t, written, notes/batch, "at least one between two batches")
			})
		}
	})
}
