package engine

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

const (
	created driver.Time = 1_000
	next    driver.Time = 2_000
	now     driver.Time = 3_000
	later   driver.Time = 4_000
)

var owner = outmill.NewOwnerToken().String()

// rowIn is a row that has been claimed three times and whose lease has ended once.
func rowIn(stage driver.Stage) driver.Row {
	r := driver.Row{Created: created, Next: next, Stage: stage, Attempts: 1, Claims: 3, Expiries: 1}
	switch stage {
	case driver.Leased:
		r.Wake, r.Owner, r.Worker = now, owner, "host:1"
	case driver.Waiting, driver.Delayed:
		r.Wake = next
	case driver.Held:
		r.Under = driver.KeyNote("k")
	case driver.Ready, driver.Processed, driver.Dead:
	}
	return r
}

func TestRow(t *testing.T) {
	t.Parallel()
	all := []driver.Stage{driver.Ready, driver.Held, driver.Waiting, driver.Delayed, driver.Leased, driver.Processed, driver.Dead}
	held := []driver.Stage{driver.Leased}
	claimable := []driver.Stage{driver.Ready, driver.Held, driver.Waiting, driver.Delayed, driver.Leased}
	type counts struct{ attempts, claims, expiries int }
	same := counts{1, 3, 1}
	for _, event := range []struct {
		name   string
		from   []driver.Stage
		change func(r *driver.Row)
		stage  driver.Stage
		wake   driver.Time
		// want are the counters; for a row with a lease that has ended, ended.
		want, ended counts
	}{
		{"lease", claimable, func(r *driver.Row) { lease(r, owner, "host:1", later) }, driver.Leased, later, counts{1, 4, 1}, counts{1, 4, 2}},
		{"admit", claimable, func(r *driver.Row) { admit(r, now) }, driver.Ready, 0, same, counts{1, 3, 2}},
		{"hold", claimable, func(r *driver.Row) { hold(r, "kk") }, driver.Held, 0, same, counts{1, 3, 2}},
		{"expire", claimable, expire, driver.Dead, 0, same, same},
		{"giveBack", held, giveBack, driver.Waiting, next, same, same},
		{"reap", held, reap, driver.Waiting, next, counts{1, 3, 2}, counts{1, 3, 2}},
		{"abandon", held, func(r *driver.Row) { abandon(r, now, later, "broken") }, driver.Waiting, later, same, counts{2, 3, 0}},
		{"snooze", held, func(r *driver.Row) { snooze(r, later) }, driver.Waiting, later, same, counts{1, 3, 0}},
		{"fail", held, func(r *driver.Row) { fail(r, now, "broken") }, driver.Dead, 0, same, counts{2, 3, 1}},
		{"kill", all, func(r *driver.Row) { kill(r, "broken") }, driver.Dead, 0, same, same},
		{"park", all, park, driver.Dead, 0, same, same},
		{"process", held, func(r *driver.Row) { process(r, "host:1", now) }, driver.Processed, 0, same, same},
		{"requeue", []driver.Stage{driver.Dead}, func(r *driver.Row) { requeue(r, now) }, driver.Delayed, now, counts{0, 3, 0}, counts{0, 3, 0}},
	} {
		t.Run(event.name, func(t *testing.T) {
			t.Parallel()
			for _, stage := range event.from {
				r := rowIn(stage)
				want := event.want
				if stage == driver.Leased {
					want = event.ended
				}
				event.change(&r)
				require.Equal(t, event.stage, r.Stage, "from stage %d", stage)
				require.Equal(t, event.wake, r.Wake, "from stage %d", stage)
				require.Equal(t, want, counts{r.Attempts, r.Claims, r.Expiries}, "from stage %d", stage)
				require.Equal(t, event.stage == driver.Leased, r.Owner != "", "only a leased row has an owner")
				require.Equal(t, event.stage == driver.Leased, r.Worker != "", "only a leased row has a worker")
				require.Equal(t, event.stage == driver.Held, r.Under != "", "only a held row has a note")
			}
		})
	}
}

func TestRow_Suspect(t *testing.T) {
	t.Parallel()
	r := rowIn(driver.Leased)
	for _, attempts := range []int{1, 2, 3} {
		reap(&r)
		require.Equal(t, attempts, r.Attempts, "from the second expiry on each one counts as an attempt")
		lease(&r, owner, "host:1", later)
	}
}

func TestRow_GiveBack(t *testing.T) {
	t.Parallel()
	r := rowIn(driver.Leased)
	r.Next = r.Created
	giveBack(&r)
	require.Equal(t, driver.Ready, r.Stage, "a record that was due at once is due at once")
	r = rowIn(driver.Leased)
	r.Expires = created + 1
	giveBack(&r)
	require.Equal(t, created+1, r.Wake, "an expiry comes before a due time")
	admit(&r, now)
	require.Equal(t, driver.Dead, r.Stage)
}

func TestRow_Unlease(t *testing.T) {
	t.Parallel()
	for _, stage := range []driver.Stage{driver.Ready, driver.Held, driver.Waiting, driver.Leased} {
		was := rowIn(stage)
		r := was
		lease(&r, outmill.NewOwnerToken().String(), "host:2", later)
		unlease(&r, was)
		if stage == driver.Held {
			was.Stage, was.Under = driver.Ready, ""
		}
		require.Equal(t, was, r)
	}
}

func TestRow_Fill(t *testing.T) {
	t.Parallel()
	r := rowIn(driver.Leased)
	var record outmill.Record
	fill(&record, &r)
	require.Equal(t, owner, record.Owner.String())
	require.Equal(t, time.UnixMicro(int64(now)).UTC(), record.LeaseUntil)
	require.Zero(t, record.NextAttemptAt)
	r = rowIn(driver.Held)
	fill(&record, &r)
	require.Equal(t, time.UnixMicro(int64(next)).UTC(), record.NextAttemptAt, "its note is open")
	require.Zero(t, record.Owner)
	r.Blocked = true
	fill(&record, &r)
	require.Zero(t, record.NextAttemptAt)
	r = rowIn(driver.Leased)
	r.Owner = "no token"
	fill(&record, &r)
	require.True(t, record.Owner.IsZero(), "an owner that is no token is shown as none")
}

func TestTime_After(t *testing.T) {
	t.Parallel()
	require.Equal(t, driver.Time(11), driver.Time(10).After(time.Nanosecond), "it rounds up")
	require.Equal(t, driver.Time(10), driver.Time(10).After(-time.Second))
	require.Equal(t, driver.Time(10).After(math.MaxInt64), driver.Time(10).After(math.MaxInt64-1))
	require.LessOrEqual(t, driver.Never.After(math.MaxInt64), driver.Never, "it does not overflow")
	require.True(t, driver.Time(0).Of().IsZero())
}
