package storetest

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// fromOutside is metadata that a sender elsewhere makes to steer the outbox of a program that
// passes his message on.
func fromOutside(join outmill.JoinID) map[string]string {
	return map[string]string{
		string(outmill.InstructionDueAt):      "2099-01-01T00:00:00Z",
		string(outmill.InstructionDelay):      "87600h0m0s",
		string(outmill.InstructionExpiresAt):  "2001-01-01T00:00:00Z",
		string(outmill.InstructionTimeToLive): "1ns",
		string(outmill.InstructionDedupKey):   "the same",
		string(outmill.InstructionJoins):      join.String(),
		string(outmill.InstructionWaitsFor):   join.String(),
		delay.DelayedForKey:                   "87600h0m0s",
		delay.DelayedUntilKey:                 time.Now().AddDate(10, 0, 0).Format(time.RFC3339),
	}
}

func outsideInstructsNothing(e *env) {
	e.Register(group)
	metadata := fromOutside(outmill.NewJoinID())
	for _, name := range []string{"m1", "m2"} {
		msg := message.NewMessage(name, nil)
		msg.Metadata = metadata
		made, err := storekit.RecordOf(orders, msg)
		require.NoError(e.T, err)
		e.Append(made)
	}
	found := e.ClaimAll()
	require.Equal(e.T, []string{"m1", "m2"}, suite.Names(found))
	for _, r := range found {
		require.Equal(e.T, metadata, r.Metadata)
		require.Empty(e.T, r.DedupKey)
		require.True(e.T, r.ExpiresAt.IsZero())
		require.Empty(e.T, r.Joins)
		require.True(e.T, r.WaitsFor.IsZero())
	}
}
