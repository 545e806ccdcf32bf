package txtest

import (
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

// stepSentences are about the notes of steps of joins.
func stepSentences() []sentence {
	return []sentence{
		{"a step of a join counts with its ack, and not with the note of its handler", stepCountsWithAck},
		{"a step that was handled, and is dead, counts as failed until it is requeued and its note is found", stepFailedThough},
		{"calls about joins in a transaction that has ended are ErrInvalidTx, and nothing is written", endedJoin},
	}
}

func stepCountsWithAck(e *env) {
	id := e.steps("m1", "m2")
	got := e.ClaimNamed(outmill.NewOwnerToken())
	_, err := e.handle(got["m1"])
	require.NoError(e.T, err)
	e.requireCounts(id, 0, 0)
	e.Ack(got["m1"])
	e.requireCounts(id, 1, 0)
	e.Ack(got["m2"])
	e.requireCounts(id, 2, 0)
}

func stepFailedThough(e *env) {
	id := e.steps("m1")
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	_, err := e.handle(r)
	require.NoError(e.T, err)
	dead(e, r)
	e.requireCounts(id, 0, 1)
	e.Elapse(2 * retention)
	require.Zero(e.T, e.Did(e.notes().DeleteNotes, 10))
	require.Equal(e.T, 1, e.Requeue(r))
	e.requireCounts(id, 0, 0)
	e.requireHandledOnce(r, "after the requeue")
	e.requireCounts(id, 1, 0)
}
