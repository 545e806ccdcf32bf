package worker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
)

// suspect makes the record a suspect, as if its lease had expired twice.
func (r *rig) suspect(rec *outmill.Record, attempts int) {
	r.Helper()
	r.exec(`UPDATE outmill_records SET expiries = ?, attempts = ? WHERE id = ?`, outmill.SuspectExpiries, attempts, rec.ID)
}

func TestSuspect(t *testing.T) {
	t.Parallel()

	t.Run("a suspect is handled alone", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		records := r.append("neighbour", "killer", "later")
		r.suspect(records[1], 0)
		w := r.start(nil)
		neighbour := r.take(w)
		require.Equal(t, "neighbour", neighbour.Record.MessageID)
		r.eventuallyStatus(records[1], outmill.StatusLeased)
		r.takesNothing(w)

		neighbour.Ack()
		killer := r.take(w)
		require.Equal(t, "killer", killer.Record.MessageID)
		require.Nil(t, r.get(records[0]), "what was handled before is in the store")
		r.takesNothing(w)
		require.Zero(t, r.get(records[2]).Claims, "nothing else is claimed")

		killer.Ack()
		require.Equal(t, "later", r.take(w).Record.MessageID)
	})

	t.Run("a suspect does not wait for lost items", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		records := r.append("neighbour", "killer")
		r.suspect(records[1], 0)
		w := r.start(func(c *worker.Config) { c.Lease = time.Second })
		neighbour := r.take(w)
		r.eventuallyStatus(records[1], outmill.StatusLeased)
		_, err := r.store.Delete(t.Context(), records[0].ID)
		require.NoError(t, err)
		require.Equal(t, "killer", r.take(w).Record.MessageID)
		neighbour.Ack()
	})

	t.Run("a suspect goes dead after the last attempt without being handed out", func(t *testing.T) {
		t.Parallel()
		for _, policy := range []outmill.KeyPolicy{outmill.KeyBlock, outmill.KeyPark} {
			t.Run("policy "+policy.String(), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				records := r.append("k:killer", "free")
				r.suspect(records[0], 3)
				dead := make(chan string, 1)
				w := r.start(func(c *worker.Config) {
					byKey(c)
					c.KeyPolicy = policy
					c.Retry.MaxAttempts = 3
					c.OnDead = func(rec *outmill.Record, reason string) { dead <- rec.MessageID + ": " + reason }
				})
				require.Equal(t, "free", r.take(w).Record.MessageID)
				require.Equal(t, "k:killer: outmill: the lease expired 2 times: the record may be killing its workers, or hanging them", <-dead)
				require.Equal(t, outmill.StatusDead, r.get(records[0]).Status)
				require.Equal(t, 3, r.get(records[0]).Attempts, "nobody has handled it once more")
			})
		}
	})

	t.Run("a suspect without a last attempt is handed out for ever", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		rec := r.append("killer")[0]
		r.suspect(rec, 1000)
		w := r.start(func(c *worker.Config) { c.Retry.MaxAttempts = -1 })
		r.take(w).Ack()
		r.eventuallyGone(rec)
	})

	t.Run("a suspect that is released makes room for claims", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		records := r.append("killer", "other")
		r.suspect(records[0], 0)
		w := r.start(nil)
		r.take(w).Snooze(never)
		require.Equal(t, "other", r.take(w).Record.MessageID)
	})
}
