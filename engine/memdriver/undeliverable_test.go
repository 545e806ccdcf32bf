package memdriver_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/memdriver"
	"github.com/outmill/outmill/internal/testenv/journal"
)

func TestClaim_LogsEachRecordThatItMakesDead(t *testing.T) {
	t.Parallel()
	logger := journal.New()
	db := memdriver.New()
	s := store{engine.New(memdriver.Driver{Database: db}, engine.Config{Name: "memory", Logger: logger}), db}
	t.Cleanup(func() { _ = s.Close() })
	ctx := t.Context()
	require.NoError(t, s.Ensure(ctx))
	require.NoError(t, s.RegisterGroup(ctx, outmill.Registration{Group: group}))
	state, content, large, good := rec("state", ""), rec("content", ""), rec("large", ""), rec("good", "")
	large.Payload = make([]byte, 100_000)
	for _, r := range []*outmill.Record{state, content, large, good} {
		r.Topic = topic
	}
	require.NoError(t, s.Append(ctx, state, content, large, good))
	require.NoError(t, db.Break(state.ID, memdriver.AttemptsColumn))
	require.NoError(t, db.Break(content.ID, memdriver.PayloadColumn))
	found, err := s.Claim(ctx, outmill.ClaimRequest{Owner: a, Group: group, Limit: 10, Lease: time.Minute, MaxRecord: 10_000})
	require.NoError(t, err)
	require.Equal(t, []string{"good"}, ids(found))
	reasons := map[any]string{}
	for _, line := range logger.Lines(watermill.ErrorLogLevel) {
		require.Equal(t, topic, line.Fields["topic"])
		require.Equal(t, group, line.Fields["group"])
		reasons[line.Fields["work_item_id"]] = line.Err.Error()
	}
	require.Len(t, reasons, 3)
	require.Contains(t, reasons[state.ID.String()], "attempts")
	require.Contains(t, reasons[content.ID.String()], "payload")
	require.Contains(t, reasons[large.ID.String()], "the limit is 10000")
}
