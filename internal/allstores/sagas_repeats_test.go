package allstores

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sagas"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/subscriber"
)

// spoilParcel changes the stored saga before its own handler does, so that this conflicts.
func (k keeper) spoilParcel(c *sagas.Context[parcel], _ parcelEvent) error {
	saga, err := k.sagas.FindSaga(c, "parcel", c.Correlation, &parcel{}, roles.SagaOptions{})
	if err != nil {
		return err
	}
	return k.sagas.UpdateSaga(c, saga, &parcel{}, roles.SagaOptions{})
}

// eager is a subscriber with so many attempts.
func (k keeper) eager(t *testing.T, attempts int) *subscriber.Subscriber {
	t.Helper()
	cfg := quick()
	cfg.Retry.MaxAttempts = attempts
	sub, err := subscriber.New(k.store, cfg, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	return sub
}

// startSpoiling starts a saga whose message always conflicts, and publishes one.
func (k keeper) startSpoiling(t *testing.T, cfg sagas.Config, sub *subscriber.Subscriber) {
	t.Helper()
	require.NoError(t, k.sagas.PrepareSagas(t.Context(), "parcel"))
	require.NoError(t, k.sagas.InsertSaga(t.Context(), &roles.Saga{Type: "parcel", Correlation: "o1"}, &parcel{}, roles.SagaOptions{}))
	k.start(t, cfg, sub, sagas.On("paid", ofParcel, k.spoilParcel))
	k.publish(t, "paid", "m1", "o1")
}

func (k keeper) records(t *testing.T) []*outmill.Record {
	t.Helper()
	found, err := k.store.List(t.Context(), outmill.ListQuery{Content: true, Topic: "paid"})
	require.NoError(t, err)
	return found
}

func TestSagas_EndlessConflict(t *testing.T) {
	t.Parallel()
	for name, box := range map[string]*inbox.Config{"without an inbox": nil, "in an inbox": {}} {
		t.Run("a message that always conflicts "+name+" goes dead with the number of conflicts", func(t *testing.T) {
			t.Parallel()
			onEachKeeper(t, func(t *testing.T, k keeper) {
				k.startSpoiling(t, sagas.Config{Inbox: box}, k.eager(t, 3))
				require.Eventually(t, func() bool {
					found := k.records(t)
					return len(found) == 1 && found[0].Status == outmill.StatusDead
				}, patience, 10*time.Millisecond)
				dead := k.records(t)[0]
				// Stores on package engine count the last one, too.
				require.Contains(t, []int{2, 3}, dead.Attempts)
				require.Equal(t, 12, dead.Claims)
				require.Contains(t, dead.LastError, "12 times in a row: ")
				require.Contains(t, dead.LastError, sagas.ErrConflict.Error())
			})
		})
	}
	t.Run("doctor, why and the subscriber show a message that always conflicts", func(t *testing.T) {
		t.Parallel()
		onEachKeeper(t, func(t *testing.T, k keeper) {
			sub := k.eager(t, 1_000_000)
			k.startSpoiling(t, sagas.Config{}, sub)
			comesAgain := func() (found []monitor.Problem) {
				report, err := monitor.Doctor(t.Context(), k.store, monitor.DoctorConfig{})
				require.NoError(t, err)
				return slices.DeleteFunc(report.Problems, func(p monitor.Problem) bool { return p.Kind != "comes_again" })
			}
			require.Eventually(t, func() bool { return len(comesAgain()) == 1 }, patience, 50*time.Millisecond)
			id := k.records(t)[0].ID.String()
			problem := comesAgain()[0]
			require.Equal(t, "paid", problem.Topic)
			require.Contains(t, problem.Text, id)
			require.Contains(t, problem.Text, sagas.ErrConflict.Error())
			require.GreaterOrEqual(t, sub.Repeats(), storekit.MostCollisions)
			answer, err := monitor.Why(t.Context(), k.store, id, monitor.WhyConfig{})
			require.NoError(t, err)
			text, err := json.Marshal(answer)
			require.NoError(t, err)
			for _, want := range []string{"comes_again", "times in a row", sagas.ErrConflict.Error()} {
				require.Contains(t, string(text), want)
			}
			_, err = k.store.Delete(t.Context(), k.records(t)[0].ID)
			require.NoError(t, err)
		})
	})
	t.Run("why counts how often a handler has put its message off", func(t *testing.T) {
		t.Parallel()
		onEachKeeper(t, func(t *testing.T, k keeper) {
			require.NoError(t, k.store.RegisterGroup(t.Context(), outmill.Registration{}))
			k.publish(t, "paid", "m1", "o1")
			request := outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Group: outmill.DefaultGroup, Limit: 1, Lease: time.Hour}
			for range 40 {
				var found []*outmill.Record
				require.Eventually(t, func() (is bool) {
					var err error
					found, err = k.store.Claim(t.Context(), request)
					require.NoError(t, err)
					return len(found) == 1
				}, patience, time.Millisecond)
				require.NoError(t, k.store.Snooze(t.Context(), []outmill.Settlement{{Lease: found[0].Lease()}}))
			}
			answer, err := monitor.Why(t.Context(), k.store, k.records(t)[0].ID.String(), monitor.WhyConfig{})
			require.NoError(t, err)
			reasons := answer.Explanations[0].Reasons
			at := slices.IndexFunc(reasons, func(r monitor.Reason) bool { return r.Kind == "came_back" })
			require.GreaterOrEqual(t, at, 0, "%v", reasons)
			require.True(t, strings.HasPrefix(reasons[at].Text, "It was claimed 40 times and has 0 failed attempts"), reasons[at].Text)
		})
	})
}
