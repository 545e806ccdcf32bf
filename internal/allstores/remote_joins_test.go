package allstores

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// TestRemoteJoins is the suite of joins whose steps are in other stores.
func TestRemoteJoins(t *testing.T) {
	t.Parallel()
	for name, providers := range remotePairs {
		t.Run("over "+name, func(t *testing.T) {
			t.Parallel()
			f := newRemoteFleet(t, providers)
			for _, sentence := range slices.Concat(remoteOutcomes, remoteOutages, remoteCrashes, remoteAttacks) {
				t.Run(sentence.says, func(t *testing.T) {
					f.t = t
					defer f.purge()
					sentence.test(f)
				})
			}
		})
	}
}

type sentence struct {
	says string
	test func(f *fleet)
}

var remoteOutcomes = []sentence{
	{"a join with a step in each store ends when all are acked", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 3}, everywhere...)
		f.send(3)
		for i, store := range everywhere {
			f.do(store, true)
			f.bring(store)
			f.requireCounts(id, i+1, 0)
		}
		f.finish(id, roles.JoinCompleted, 3, 0)
	}},
	{"a message that goes dead in another store is a failed step", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 2}, east, west)
		f.send(2)
		f.do(east, false)
		f.do(west, true)
		f.finish(id, roles.JoinFailed, 1, 1)
	}},
	{"steps of the home and of another store count together", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 2}, east)
		msg := message.NewMessage("local", nil)
		joins.AddStep(msg, id)
		require.NoError(f.t, appender{f.stores[home]}.Publish(work, msg))
		f.send(1)
		f.do(home, true)
		f.do(east, true)
		f.finish(id, roles.JoinCompleted, 2, 0)
	}},
	{"an attempt that fails, and is followed by one that succeeds, does not count", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 1}, east)
		f.send(1)
		rec := f.mustClaim(east, work)
		require.NoError(f.t, f.stores[east].Abandon(f.t.Context(), []outmill.Settlement{{Lease: rec.Lease(), Err: "timeout"}}))
		f.bring(east)
		f.requireCounts(id, 0, 0)
		f.do(east, true)
		f.finish(id, roles.JoinCompleted, 1, 0)
	}},
	{"a message that was deleted in its store is a failed step", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 1}, east)
		f.send(1)
		_, err := f.stores[east].Delete(f.t.Context(), f.records(east, work, "")[0].ID)
		require.NoError(f.t, err)
		f.finish(id, roles.JoinFailed, 0, 1)
	}},
	{"a requeue takes a failed step back until its outcome is counted", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 1}, east)
		f.send(1)
		f.do(east, false)
		_, err := f.stores[east].Requeue(f.t.Context(), f.records(east, work, outmill.StatusDead)[0].ID)
		require.NoError(f.t, err)
		f.bring(east)
		f.requireCounts(id, 0, 0)
		f.do(east, true)
		f.finish(id, roles.JoinCompleted, 1, 0)
	}},
	{"the first outcome that is counted stays", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 2}, east, west)
		f.send(2)
		f.do(east, false)
		f.bring(east)
		f.requireCounts(id, 0, 1)
		_, err := f.stores[east].Requeue(f.t.Context(), f.records(east, work, outmill.StatusDead)[0].ID)
		require.NoError(f.t, err)
		f.do(east, true)
		f.do(west, true)
		f.finish(id, roles.JoinFailed, 1, 1)
	}},
	{"any step ends its join, and the others do not count", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 2, Policy: joins.Any}, east, west)
		f.send(2)
		f.do(west, true)
		f.bring(west)
		require.NoError(f.t, f.next(home, joins.Topic))
		f.do(east, true)
		f.finish(id, roles.JoinCompleted, 1, 0)
	}},
	{"the message arrives as it was sent", func(f *fleet) {
		id, err := joins.Start(f.t.Context(), f.joins(home), joins.Join{ExpectedSteps: 1})
		require.NoError(f.t, err)
		msg := message.NewMessage("the uuid", []byte{0, 1, 0xff})
		msg.Metadata.Set("colour", "blue")
		outmill.SetKey(msg, "k")
		outmill.SetCorrelationID(msg, "corr")
		outmill.SetTenantID(msg, "east")
		outmill.SetTrace(msg, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "")
		require.NoError(f.t, joins.SendSteps(f.t.Context(), f.stores[home], id, joins.RemoteStep{Store: east, Topic: work, Message: msg}))
		f.send(1)
		rec := f.mustClaim(east, work)
		got := storekit.MessageOf(rec)
		require.Equal(f.t, msg.UUID, got.UUID)
		require.Equal(f.t, msg.Payload, got.Payload)
		require.Equal(f.t, msg.Metadata, got.Metadata)
		f.settle(east, rec, nil)
		f.wait(id)
		f.finish(id, roles.JoinCompleted, 1, 0)
	}},
	{"a delay counts from the append in the other store", func(f *fleet) {
		id, err := joins.Start(f.t.Context(), f.joins(home), joins.Join{ExpectedSteps: 1})
		require.NoError(f.t, err)
		msg := message.NewMessage("", nil)
		outmill.SetDelay(msg, time.Hour)
		require.NoError(f.t, joins.SendSteps(f.t.Context(), f.stores[home], id, joins.RemoteStep{Store: east, Topic: work, Message: msg}))
		f.send(1)
		rec := f.records(east, work, "")[0]
		require.WithinDuration(f.t, rec.CreatedAt.Add(time.Hour), rec.DueAt, time.Minute)
	}},
	{"nothing is sent before the transaction of the home commits", func(f *fleet) {
		rollback := errors.New("no")
		err := f.stores[home].(roles.Transactor).Transact(f.t.Context(), func(ctx context.Context) error {
			id, err := joins.Start(ctx, f.joins(home), joins.Join{ExpectedSteps: 1})
			if err != nil {
				return err
			}
			if err := joins.SendSteps(ctx, f.stores[home], id, remoteSteps(east)...); err != nil {
				return err
			}
			return rollback
		})
		require.ErrorIs(f.t, err, rollback)
		require.Empty(f.t, f.records(home, joins.RemoteTopic, ""))
		require.Nil(f.t, f.claim(home, joins.RemoteTopic))
	}},
	{"a second group of the other store is waited for", func(f *fleet) {
		ctx := f.t.Context()
		second := outmill.Registration{Group: "second", Topics: outmill.Topics{Include: []string{work}}}
		require.NoError(f.t, f.stores[east].RegisterGroup(ctx, second))
		id := f.start(joins.Join{ExpectedSteps: 1}, east)
		f.send(1)
		f.do(east, true)
		f.bring(east)
		f.requireCounts(id, 0, 0)
		_, err := f.stores[east].DropGroup(ctx, "second")
		require.NoError(f.t, err)
		f.finish(id, roles.JoinCompleted, 1, 0)
	}},
	{"a second group that reads all topics of the home changes nothing", func(f *fleet) {
		ctx := f.t.Context()
		// Its name is before that of the group with the handlers, so its records have the ids of the
		// steps.
		require.NoError(f.t, f.stores[home].RegisterGroup(ctx, outmill.Registration{Group: "audit"}))
		id := f.start(joins.Join{ExpectedSteps: 2}, east, west)
		audited, err := f.stores[home].Claim(ctx, outmill.ClaimRequest{
			Owner: outmill.NewOwnerToken(), Group: "audit", Limit: 100, Lease: patience,
		})
		require.NoError(f.t, err)
		require.Len(f.t, audited, 3)
		for _, rec := range audited {
			require.NoError(f.t, f.stores[home].Ack(ctx, "", []outmill.Lease{rec.Lease()}))
		}
		f.send(2)
		f.do(east, true)
		f.do(west, false)
		f.bring(east)
		f.bring(west)
		f.requireCounts(id, 1, 1)
		_, err = f.stores[home].DropGroup(ctx, "audit")
		require.NoError(f.t, err)
		f.finish(id, roles.JoinFailed, 1, 1)
	}},
}

var remoteOutages = []sentence{
	{"a step waits while its store is away", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 1}, east)
		f.leave(east, true)
		for range 20 {
			f.send(1)
		}
		require.Zero(f.t, f.records(home, joins.RemoteTopic, "")[0].Attempts)
		f.leave(east, false)
		f.send(1)
		f.do(east, true)
		f.finish(id, roles.JoinCompleted, 1, 0)
	}},
	{"an outcome waits while the home is away", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 1}, east)
		f.send(1)
		f.do(east, true)
		f.leave(home, true)
		for range 20 {
			f.bring(east)
		}
		require.Zero(f.t, f.records(east, joins.OutcomeTopic, "")[0].Attempts)
		f.leave(home, false)
		f.requireCounts(id, 0, 0)
		f.finish(id, roles.JoinCompleted, 1, 0)
	}},
	{"a deadline decides while a store is away, and what was not sent is not sent any more", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 1, Timeout: time.Nanosecond}, east)
		f.leave(east, true)
		f.send(1)
		// Stores round the deadline up to a unit of their clock, so it may be a moment away.
		f.until(func() bool { return f.next(home, joins.Topic) == nil }, "the deadline does not decide")
		f.leave(east, false)
		f.finish(id, roles.JoinFailed, 0, 0)
		require.Equal(f.t, roles.ReasonDeadline, f.join(id).Reason)
		require.Empty(f.t, f.records(east, work, ""))
	}},
	{"a cancelled join sends no further step", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 1}, east)
		require.NoError(f.t, f.joins(home).CancelJoin(f.t.Context(), id, "enough"))
		f.finish(id, roles.JoinCancelled, 0, 0)
		require.Empty(f.t, f.records(east, work, ""))
	}},
	{"the outcome of a join that has ended changes nothing, and a debug line says so", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 1}, east)
		f.send(1)
		require.NoError(f.t, f.joins(home).CancelJoin(f.t.Context(), id, "enough"))
		require.NoError(f.t, f.next(home, joins.RemoteTopic))
		f.do(east, true)
		f.logged.Take()
		f.bring(east)
		require.NotEmpty(f.t, f.logged.Find("DEBUG", "The outcome of a step changes nothing"))
		require.Empty(f.t, f.logged.Lines(watermill.InfoLogLevel, watermill.ErrorLogLevel), "an operator need not know")
		f.drain()
		require.Empty(f.t, f.records(east, joins.OutcomeTopic, ""))
		require.Equal(f.t, roles.JoinCompleted, f.localJoins(east, id)[0].Status)
	}},
	{"a step for a store that nobody knows waits, and the error is logged", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 1}, "nowhere")
		f.logged.Take()
		f.send(1)
		require.NotEmpty(f.t, f.logged.Find(`no store has the name "nowhere"`))
		require.NoError(f.t, f.joins(home).CancelJoin(f.t.Context(), id, "wrong name"))
		f.finish(id, roles.JoinCancelled, 0, 0)
	}},
}

var remoteCrashes = []sentence{
	{"a step is sent once, however often its record is handled", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 1}, east)
		for range 5 {
			f.lose(home, joins.RemoteTopic)
		}
		require.Len(f.t, f.records(east, work, ""), 1)
		f.do(east, true)
		f.finish(id, roles.JoinCompleted, 1, 0)
	}},
	{"an outcome counts once, however often it arrives", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 2}, east, west)
		f.send(2)
		f.do(east, true)
		for range 5 {
			f.lose(east, joins.OutcomeTopic)
			f.requireCounts(id, 1, 0)
		}
		f.do(west, true)
		f.finish(id, roles.JoinCompleted, 2, 0)
	}},
	{"an outcome whose message somebody deleted counts nevertheless", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 1}, east)
		f.send(1)
		_, err := f.stores[east].Delete(f.t.Context(), f.records(east, joins.OutcomeTopic, "")[0].ID)
		require.NoError(f.t, err)
		f.do(east, false)
		f.finish(id, roles.JoinFailed, 0, 1)
	}},
	{"a join that only the outcome ends is kept by the other store until the outcome is home", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 1}, east)
		f.send(1)
		f.do(east, true)
		f.leave(home, true)
		f.bring(east)
		require.Equal(f.t, roles.JoinPending, f.localJoins(east, id)[0].Status)
		f.leave(home, false)
		f.finish(id, roles.JoinCompleted, 1, 0)
		require.Equal(f.t, roles.JoinCompleted, f.localJoins(east, id)[0].Status)
	}},
	{"a step whose record is deleted in the home has failed, and its outcome is dropped", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 1}, east)
		f.send(1)
		_, err := f.stores[home].Delete(f.t.Context(), f.records(home, joins.RemoteTopic, "")[0].ID)
		require.NoError(f.t, err)
		f.do(east, true)
		f.finish(id, roles.JoinFailed, 0, 1)
	}},
}

var remoteAttacks = []sentence{
	{"a store cannot settle the step of another one", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 1}, east)
		f.send(1)
		outcome := f.records(east, joins.OutcomeTopic, "")[0]
		f.forgeLocal(west, outcome)
		f.forge(west, joins.OutcomeTopic, outcome.Payload)
		require.ErrorIs(f.t, f.next(west, joins.OutcomeTopic), joins.ErrForeignOutcome)
		f.requireCounts(id, 0, 0)
		f.do(east, true)
		f.finish(id, roles.JoinCompleted, 1, 0)
	}},
	{"an outcome cannot end the join of somebody else", func(f *fleet) {
		victim := joins.Join{ExpectedSteps: 1}
		require.NoError(f.t, f.joins(east).StartJoin(f.t.Context(), &victim))
		id := f.start(joins.Join{ExpectedSteps: 1}, east)
		f.send(1)
		forged := fields(f.t, f.records(east, joins.OutcomeTopic, "")[0].Payload)
		forged["step"] = victim.ID.String()
		f.forge(east, joins.OutcomeTopic, encoded(f.t, forged))
		for _, err := range f.nextFew(east, joins.OutcomeTopic, 2) {
			if _, snoozed := outmill.SnoozeDelay(err); !snoozed {
				require.ErrorIs(f.t, err, joins.ErrForeignOutcome)
			}
		}
		f.do(east, true)
		f.finish(id, roles.JoinCompleted, 1, 0)
		got, err := f.joins(east).GetJoin(f.t.Context(), victim.ID)
		require.NoError(f.t, err)
		require.Equal(f.t, roles.JoinPending, got.Status)
	}},
	{"a home cannot end a join of another store by a step with its id", func(f *fleet) {
		victim := joins.Join{ExpectedSteps: 1}
		require.NoError(f.t, f.joins(east).StartJoin(f.t.Context(), &victim))
		id := f.start(joins.Join{ExpectedSteps: 2}, east)
		forged := fields(f.t, f.records(home, joins.RemoteTopic, "")[0].Payload)
		forged["step"] = victim.ID.String()
		require.NoError(f.t, f.stores[home].Append(f.t.Context(), &outmill.Record{
			ID: outmill.WorkItemID(victim.ID), Topic: joins.RemoteTopic, Payload: encoded(f.t, forged), Joins: []outmill.JoinID{id},
		}))
		refused := 0
		for _, err := range f.nextFew(home, joins.RemoteTopic, 2) {
			if errors.Is(err, joins.ErrForeignOutcome) {
				refused++
			}
		}
		require.Equal(f.t, 1, refused)
		f.do(east, true)
		f.finish(id, roles.JoinFailed, 1, 1)
		got, err := f.joins(east).GetJoin(f.t.Context(), victim.ID)
		require.NoError(f.t, err)
		require.Equal(f.t, roles.JoinPending, got.Status)
	}},
	{"a step that names a topic or a join of package joins is not published", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 4}, east)
		step := fields(f.t, f.records(home, joins.RemoteTopic, "")[0].Payload)
		f.send(1)
		for name, value := range map[string]any{
			"topic":        joins.OutcomeTopic,
			"instructions": map[outmill.Instruction]string{outmill.InstructionJoins: id.String()},
			"payload":      nil,
		} {
			record := outmill.NewWorkItemID()
			forged := maps.Clone(step)
			forged["step"], forged[name] = record.String(), value
			require.NoError(f.t, f.stores[home].Append(f.t.Context(), &outmill.Record{
				ID: record, Topic: joins.RemoteTopic, Payload: encoded(f.t, forged), Joins: []outmill.JoinID{id},
			}))
		}
		refused := 0
		for _, err := range f.nextFew(home, joins.RemoteTopic, 4) {
			if outmill.IsPermanent(err) {
				require.ErrorIs(f.t, err, outmill.ErrInvalidRecord)
				refused++
			}
		}
		require.Equal(f.t, 2, refused)
		f.do(east, true)
		f.do(east, true)
		f.finish(id, roles.JoinFailed, 2, 2)
	}},
	{"a step that Allow refuses has failed, and is not sent", func(f *fleet) {
		f.allow = func(from, to string) bool { return from == to }
		id := f.start(joins.Join{ExpectedSteps: 1}, east)
		require.ErrorIs(f.t, f.next(home, joins.RemoteTopic), joins.ErrNotAllowed)
		f.finish(id, roles.JoinFailed, 0, 1)
		require.Empty(f.t, f.records(east, work, ""))
	}},
	{"a requeue sends a step that was refused", func(f *fleet) {
		f.allow = func(string, string) bool { return false }
		id := f.start(joins.Join{ExpectedSteps: 1}, east)
		require.ErrorIs(f.t, f.next(home, joins.RemoteTopic), joins.ErrNotAllowed)
		f.allow = nil
		_, err := f.stores[home].Requeue(f.t.Context(), f.records(home, joins.RemoteTopic, outmill.StatusDead)[0].ID)
		require.NoError(f.t, err)
		f.requireCounts(id, 0, 0)
		f.send(1)
		f.do(east, true)
		f.finish(id, roles.JoinCompleted, 1, 0)
	}},
	{"messages that package joins has not written go dead and change nothing", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 1}, east)
		f.send(1)
		outcome := fields(f.t, f.records(east, joins.OutcomeTopic, "")[0].Payload)
		step := fields(f.t, f.records(home, joins.RemoteTopic, "")[0].Payload)
		remoteBefore := len(f.records(home, joins.RemoteTopic, outmill.StatusDead))
		f.hold(home, joins.RemoteTopic)
		f.hold(east, joins.OutcomeTopic)
		for _, payload := range garbled(f.t, outcome, "home", "join", "step", "record") {
			f.forge(east, joins.OutcomeTopic, payload)
			require.True(f.t, outmill.IsPermanent(f.next(east, joins.OutcomeTopic)), "%s", payload)
		}
		for _, payload := range garbled(f.t, step, "store", "join", "step") {
			f.forge(home, joins.RemoteTopic, payload)
			require.True(f.t, outmill.IsPermanent(f.next(home, joins.RemoteTopic)), "%s", payload)
			remoteBefore++
		}
		require.Len(f.t, f.records(home, joins.RemoteTopic, outmill.StatusDead), remoteBefore)
		f.requireCounts(id, 0, 0)
		f.giveBack()
		f.do(east, true)
		f.finish(id, roles.JoinCompleted, 1, 0)
	}},
	{"a payload of a newer version waits for a newer program", func(f *fleet) {
		id := f.start(joins.Join{ExpectedSteps: 1}, east)
		f.hold(home, joins.RemoteTopic)
		for topic, store := range map[string]string{joins.RemoteTopic: home, joins.OutcomeTopic: east} {
			f.forge(store, topic, []byte(`{"version":2,"join":7}`))
			_, snoozed := outmill.SnoozeDelay(f.next(store, topic))
			require.True(f.t, snoozed)
		}
		require.NoError(f.t, f.joins(home).CancelJoin(f.t.Context(), id, "enough"))
	}},
}

// garbled returns payloads that lack a field, or have a wrong one.
func garbled(t tb, payload map[string]any, names ...string) (list [][]byte) {
	list = append(list, nil, []byte("{}"), []byte("no JSON"), []byte(`{"version":1}`))
	for _, name := range names {
		for _, value := range []any{nil, 7, "", strings.Repeat("x", 10_000), "a\x00b", " blank "} {
			bad := maps.Clone(payload)
			bad[name] = value
			list = append(list, encoded(t, bad))
		}
	}
	return list
}

func fields(t tb, payload []byte) (all map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(payload, &all))
	return all
}

func encoded(t tb, payload map[string]any) []byte {
	t.Helper()
	bytes, err := json.Marshal(payload)
	require.NoError(t, err)
	return bytes
}
