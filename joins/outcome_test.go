package joins_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/roles"
)

func TestOutcome(t *testing.T) {
	t.Parallel()

	t.Run("a join completes when its steps in several topics are done", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		p.extract()
		completed, failed := p.listen(transform), p.listen(alert)
		p.run(t)
		id := p.etl(t, of(3), failIfAnyStepFailed, good, good, good)
		msg := receive(t, completed)
		require.Equal(t, "all is there", string(msg.Payload))
		require.NotEmpty(t, msg.UUID)
		requireJoinOf(t, msg, id, roles.JoinCompleted, "", "3", "3", "0")
		require.NotContains(t, msg.Metadata, joins.MetadataReason)
		require.Equal(t, "42", msg.Metadata[joins.MetadataGroupingKey])
		require.Equal(t, "etl", msg.Metadata["type"])
		p.requireSettled(t, completed, failed)
		require.Equal(t, roles.JoinCompleted, p.join(t, id).Status)
	})

	t.Run("retries of a step count once", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		p.extract()
		completed, failed := p.listen(transform), p.listen(alert)
		p.run(t)
		id := p.etl(t, of(3), failIfAnyStepFailed, badAtFirst, badAtFirst, good)
		requireJoinOf(t, receive(t, completed), id, roles.JoinCompleted, "", "3", "3", "0")
		p.requireSettled(t, completed, failed)
	})

	t.Run("a join ends as its policy says", func(t *testing.T) {
		t.Parallel()
		one := roles.Join{ExpectedSteps: 3, Policy: roles.JoinAny}
		two := roles.Join{ExpectedSteps: 3, Policy: roles.JoinQuorum, Quorum: 2}
		for name, c := range map[string]struct {
			join      roles.Join
			change    func(*joins.WaitRequest)
			steps     []string
			want      roles.JoinStatus
			reason    string
			completed string
			// failed is the number of failed steps in the message; "" if it depends on timing.
			failed string
		}{
			"all, where failures do not matter": {of(3), nil, []string{good, bad, bad}, roles.JoinCompleted, "", "1", "2"},
			"all, where failures matter": {of(3), failIfAnyStepFailed, []string{good, bad, good}, roles.JoinFailed,
				roles.ReasonStepFailed, "2", "1"},
			"all, where all fail": {of(2), failIfAnyStepFailed, []string{bad, bad}, roles.JoinFailed, roles.ReasonStepFailed, "0",
				"2"},
			"any, where one completes":        {one, nil, []string{bad, bad, good}, roles.JoinCompleted, "", "1", ""},
			"any, where others are not there": {one, nil, []string{good}, roles.JoinCompleted, "", "1", "0"},
			"any, where all fail":             {one, nil, []string{bad, bad, bad}, roles.JoinFailed, roles.ReasonNoQuorum, "0", "3"},
			"quorum, where two complete":      {two, failIfAnyStepFailed, []string{good, good}, roles.JoinCompleted, "", "2", "0"},
			"quorum, where two fail":          {two, nil, []string{bad, bad}, roles.JoinFailed, roles.ReasonNoQuorum, "0", "2"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p := newPlant(t)
				p.extract()
				ends := map[roles.JoinStatus]<-chan *message.Message{
					roles.JoinCompleted: p.listen(transform),
					roles.JoinFailed:    p.listen(alert),
				}
				p.run(t)
				id := p.etl(t, c.join, c.change, c.steps...)
				msg := receive(t, ends[c.want])
				if c.failed == "" {
					c.failed = msg.Metadata[joins.MetadataFailedSteps]
				}
				requireJoinOf(t, msg, id, c.want, c.reason, strconv.Itoa(c.join.ExpectedSteps), c.completed, c.failed)
				require.Eventually(t, func() bool { return len(p.records(t, joins.Topic, "")) == 0 }, patience, tick)
				for _, arrived := range ends {
					require.Empty(t, arrived)
				}
				join := p.join(t, id)
				require.Equal(t, c.want, join.Status)
				require.Equal(t, c.reason, join.Reason)
			})
		}
	})

	t.Run("a deadline ends a join whose steps are not done", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			complete bool
			want     roles.JoinStatus
		}{
			"it fails": {false, roles.JoinFailed},
			"it completes with the steps that it has": {true, roles.JoinCompleted},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p := newPlant(t)
				// No handler reads the other steps.
				p.handle(extracts[0], work)
				ends := map[roles.JoinStatus]<-chan *message.Message{
					roles.JoinCompleted: p.listen(transform),
					roles.JoinFailed:    p.listen(alert),
				}
				// With this snooze the test fails unless the snooze ends at the deadline.
				p.run(t, func(cfg *joins.Config) { cfg.Snooze = time.Hour })
				join := of(3)
				join.Timeout, join.CompleteAtDeadline = 500*time.Millisecond, c.complete
				id := p.etl(t, join, nil, good, good, good)
				msg := receive(t, ends[c.want])
				requireJoinOf(t, msg, id, c.want, roles.ReasonDeadline, "3", strconv.Itoa(p.join(t, id).CompletedSteps), "0")
				require.Eventually(t, func() bool { return len(p.records(t, joins.Topic, "")) == 0 }, patience, tick)
				for _, arrived := range ends {
					require.Empty(t, arrived)
				}
			})
		}
	})

	t.Run("a join may be a step of another one", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		p.extract()
		inner, outer, failed := p.listen("etl.part"), p.listen(transform), p.listen(alert)
		p.run(t)
		var whole outmill.JoinID
		parts := make([]outmill.JoinID, 2)
		p.inTx(t, func(ctx context.Context) {
			whole = start(t, ctx, p.Store, roles.Join{ExpectedSteps: len(parts), GroupingKey: "whole"})
			require.NoError(t, joins.Wait(ctx, p.pub, waitFor(whole)))
			for i := range parts {
				parts[i] = start(t, ctx, p.Store, of(3))
				p.publishSteps(t, ctx, parts[i], good, badAtFirst, good)
				wait := waitFor(parts[i])
				wait.OnComplete = joins.Next{Topic: "etl.part", Message: step("part", whole)}
				require.NoError(t, joins.Wait(ctx, p.pub, wait))
			}
		})
		var ended []string
		for range parts {
			ended = append(ended, receive(t, inner).Metadata[joins.MetadataJoinID])
		}
		require.ElementsMatch(t, []string{parts[0].String(), parts[1].String()}, ended)
		msg := receive(t, outer)
		requireJoinOf(t, msg, whole, roles.JoinCompleted, "", "2", "2", "0")
		require.Equal(t, "whole", msg.Metadata[joins.MetadataGroupingKey])
		p.requireSettled(t, inner, outer, failed)
	})

	t.Run("the message after a join is published even if the join around it has ended", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		p.extract()
		completed := p.listen(transform)
		p.run(t)
		around := start(t, t.Context(), p.Store, of(1))
		require.NoError(t, p.CancelJoin(t.Context(), around, "not wanted any more"))
		id := p.etl(t, of(1), func(wait *joins.WaitRequest) { joins.AddStep(wait.OnComplete.Message, around) }, good)
		requireJoinOf(t, receive(t, completed), id, roles.JoinCompleted, "", "1", "1", "0")
		p.requireSettled(t, completed)
		require.Zero(t, p.join(t, around).CompletedSteps)
	})

	t.Run("a message may be a step of several joins", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		p.extract()
		completed := p.listen(transform)
		p.run(t)
		one, two := start(t, t.Context(), p.Store, of(1)), start(t, t.Context(), p.Store, of(1))
		for _, id := range []outmill.JoinID{one, two} {
			require.NoError(t, joins.Wait(t.Context(), p.pub, waitFor(id)))
		}
		require.NoError(t, p.pub.Publish(extracts[0], step(good, one, two)))
		require.ElementsMatch(t, []string{one.String(), two.String()}, []string{
			receive(t, completed).Metadata[joins.MetadataJoinID],
			receive(t, completed).Metadata[joins.MetadataJoinID],
		})
		p.requireSettled(t, completed)
	})

	t.Run("a join whose number of steps was unknown is sealed by the wait", func(t *testing.T) {
		t.Parallel()
		for name, steps := range map[string]int{"several steps": 4, "no step at all": 0} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p := newPlant(t)
				p.extract()
				completed := p.listen(transform)
				p.run(t)
				id := start(t, t.Context(), p.Store, roles.Join{Unsealed: true})
				for range steps {
					p.publishSteps(t, t.Context(), id, good)
				}
				wait := waitFor(id)
				wait.Seal, wait.ExpectedSteps = true, steps
				p.inTx(t, func(ctx context.Context) { require.NoError(t, joins.Wait(ctx, p.pub, wait)) })
				msg := receive(t, completed)
				require.Equal(t, id.String(), msg.Metadata[joins.MetadataJoinID])
				p.requireSettled(t, completed)
				join := p.join(t, id)
				require.Equal(t, steps, join.ExpectedSteps)
				require.Equal(t, steps, join.CompletedSteps)
			})
		}
	})

	t.Run("no message follows without a topic", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		p.extract()
		completed, failed := p.listen(transform), p.listen(alert)
		p.run(t)
		id := p.etl(t, of(1), func(wait *joins.WaitRequest) { wait.OnComplete = joins.Next{} }, good)
		p.requireSettled(t, completed, failed)
		require.Equal(t, roles.JoinCompleted, p.join(t, id).Status)
	})

	t.Run("nothing follows a join that was cancelled", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		completed, failed := p.listen(transform), p.listen(alert)
		p.run(t, func(cfg *joins.Config) { cfg.Snooze = 10 * time.Millisecond })
		id := p.etl(t, of(1), nil)
		require.NoError(t, p.CancelJoin(t.Context(), id, "the customer has left"))
		p.requireSettled(t, completed, failed)
		require.Equal(t, roles.JoinCancelled, p.join(t, id).Status)
	})

	t.Run("the message that follows has the payload and metadata of the wait", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		p.extract()
		completed := p.listen(transform)
		p.run(t)
		join := of(1)
		join.Metadata = map[string]string{"type": "etl", "phase": "extract", joins.MetadataReason: "made up"}
		msg := message.NewMessage("not used", nil)
		msg.Metadata = message.Metadata{"phase": "transform", joins.MetadataJoinID: "of an earlier join"}
		outmill.SetKey(msg, "customer 42")
		outmill.SetCorrelationID(msg, "request 1")
		outmill.SetTenantID(msg, "acme")
		id := p.etl(t, join, func(wait *joins.WaitRequest) { wait.OnComplete.Message = msg }, good)
		got := receive(t, completed)
		require.NotEqual(t, "not used", got.UUID)
		require.Empty(t, got.Payload)
		require.Equal(t, message.Metadata{
			"phase":                       "transform",
			"type":                        "etl",
			outmill.MetadataKey:           "customer 42",
			outmill.MetadataCorrelationID: "request 1",
			outmill.MetadataTenantID:      "acme",
			joins.MetadataJoinID:          id.String(),
			joins.MetadataGroupingKey:     "42",
			joins.MetadataStatus:          "completed",
			joins.MetadataExpectedSteps:   "1",
			joins.MetadataCompletedSteps:  "1",
			joins.MetadataFailedSteps:     "0",
		}, got.Metadata)
	})

	t.Run("the correlation id of the wait reaches the message that follows", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		p.extract()
		completed, failed := p.listen(transform), p.listen(alert)
		p.run(t)
		// The publisher sets the metadata, as a user's decorator may do.
		decorated := message.Publisher(p.pub)
		decorated, err := message.MessageTransformPublisherDecorator(func(msg *message.Message) {
			outmill.SetCorrelationID(msg, "request 1")
		})(decorated)
		require.NoError(t, err)
		id := start(t, t.Context(), p.Store, of(1))
		require.NoError(t, joins.Wait(t.Context(), decorated, waitFor(id)))
		p.publishSteps(t, t.Context(), id, good)
		require.Equal(t, "request 1", receive(t, completed).Metadata[outmill.MetadataCorrelationID])

		p.etl(t, of(1), func(wait *joins.WaitRequest) {
			wait.FailIfAnyStepFailed = true
			outmill.SetCorrelationID(wait.OnComplete.Message, "request 2")
		}, bad)
		require.Equal(t, "request 2", receive(t, failed).Metadata[outmill.MetadataCorrelationID], "the wait has that of OnComplete")
	})

	t.Run("a step that several groups read is done when all of them have acked", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		p.extract()
		completed := p.listen(transform)
		p.run(t)

		cfg := quick()
		cfg.Group = "archive"
		archive := plantOn(t, p.Store, p.Store, cfg)
		open, looked := make(chan struct{}), make(chan struct{}, 1)
		archive.handle(extracts[0], func(*message.Message) error {
			looked <- struct{}{}
			<-open
			return nil
		})
		archive.start(t)

		id := p.etl(t, of(1), nil, good)
		receive(t, looked)
		require.Eventually(t, func() bool { return len(p.records(t, extracts[0], "")) == 1 }, patience, tick, "the other group has not acked")
		require.Equal(t, roles.JoinPending, p.join(t, id).Status)
		require.Empty(t, completed)
		close(open)
		requireJoinOf(t, receive(t, completed), id, roles.JoinCompleted, "", "1", "1", "0")
		p.requireSettled(t, completed)
	})
}
