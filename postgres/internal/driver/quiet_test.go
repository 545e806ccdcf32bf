package driver_test

import (
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	contract "github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver"
)

// A reader that has nothing to do looks again and again.
func TestClaim_ThatFindsNothingIsOneStatement(t *testing.T) {
	t.Parallel()
	for name, topics := range map[string]outmill.Topics{"of all topics": {}, "of some topics": {Include: []string{"orders", "payments"}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := connect(t, postgrestest.Database(t), 4, func(c *pgxpool.Config) { c.ConnConfig.Tracer = tap{} })
			open := func() *engine.Engine {
				s := engine.New(driver.New(driver.PoolOf(db), driver.Config{Name: "postgres", Schema: "outmill"}), engine.Config{})
				t.Cleanup(func() { require.NoError(t, s.Close()) })
				return s
			}
			s, other := open(), open()
			require.NoError(t, s.Ensure(t.Context()))
			require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: "readers"}))
			claim := func(order outmill.Order) (got []*outmill.Record, sent [][]any) {
				ctx, seen := tapped(t.Context())
				got, err := s.Claim(ctx, outmill.ClaimRequest{
					Owner: outmill.NewOwnerToken(), Group: "readers", Limit: 10, Lease: time.Hour, Order: order, Topics: topics,
				})
				require.NoError(t, err)
				return got, seen.list()
			}
			finds := func(record *outmill.Record, order outmill.Order, why string) {
				t.Helper()
				got, _ := claim(order)
				require.Len(t, got, 1, why)
				require.Equal(t, record.MessageID, got[0].MessageID, why)
				require.NoError(t, s.Ack(t.Context(), "worker", leasesOf(got)))
			}
			quiet := func(order outmill.Order, why string) {
				t.Helper()
				// The first look may have to read what is new, and a claim asks the topics of a moment ago first.
				require.Eventually(t, func() bool {
					got, sent := claim(order)
					require.Empty(t, got, why)
					return len(sent) == 1 && len(sent[0]) == 11
				}, time.Minute, time.Millisecond, why)
			}
			for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
				quiet(order, "an empty store")
				add := func(change func(r *outmill.Record)) *outmill.Record {
					r := &outmill.Record{Topic: "orders", Key: "k"}
					change(r)
					require.NoError(t, other.Append(t.Context(), r))
					return r
				}
				plain := func(*outmill.Record) {}
				finds(add(plain), order, "a row of the log")
				quiet(order, "what was acked")
				delayed := add(func(r *outmill.Record) { r.Delay = time.Millisecond })
				require.Eventually(t, func() bool {
					got, _ := claim(order)
					if len(got) == 0 {
						return false
					}
					require.Equal(t, delayed.MessageID, got[0].MessageID)
					require.NoError(t, s.Ack(t.Context(), "worker", leasesOf(got)))
					return true
				}, time.Minute, time.Millisecond, "a delay that has ended")
				quiet(order, "what was acked")
				require.NoError(t, other.RegisterGroup(t.Context(), outmill.Registration{Group: "others " + order.String()}))
				finds(add(plain), order, "the registrations are others")
				quiet(order, "what was acked")
			}
		})
	}
}

// Readers of several groups look at the same time, and each of them names the lines of its group.
func TestClaim_LooksOfSeveralGroupsAtOnce(t *testing.T) {
	t.Parallel()
	s := openLogged(t)
	groups := []string{"a", "b", "c"}
	for _, group := range groups {
		require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: group}))
	}
	for _, topic := range []string{"x", "y", "z"} {
		require.NoError(t, s.Append(t.Context(), &outmill.Record{Topic: topic}))
	}
	left := make(chan int, len(groups))
	var readers sync.WaitGroup
	for _, group := range groups {
		readers.Go(func() {
			got := 0
			for range 60 {
				found, err := s.Claim(t.Context(), outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Group: group, Limit: 10, Lease: time.Hour})
				if !assert.NoError(t, err) {
					break
				}
				got += len(found)
				if _, err := s.Stats(t.Context(), 10); !assert.NoError(t, err) {
					break
				}
			}
			left <- 3 - got
		})
	}
	readers.Wait()
	for range groups {
		require.Zero(t, <-left, "each group has got each message once")
	}
}

// Each registration that has ended leaves a chain. A group name for each start of a program makes many.
func TestLines_OfGroupsThatCameAndWent(t *testing.T) {
	t.Parallel()
	s := openLogged(t)
	require.NoError(t, s.Append(t.Context(), &outmill.Record{Topic: "orders"}))
	lines := func() (lines []contract.Line, statements int) {
		t.Helper()
		ctx, seen := tapped(t.Context())
		require.NoError(t, s.driver.View(ctx, contract.Begin{}, func(tx contract.Tx) (err error) {
			lines, err = tx.LinesOf(ctx, "guest", "first", "")
			if err != nil {
				return err
			}
			open, err := tx.Rows(ctx, contract.Search{By: contract.ByOpen, Limit: 1})
			require.Len(t, open, 1)
			return err
		}))
		for _, trip := range seen.list() {
			statements += len(trip)
		}
		return lines, statements
	}
	lines() // reads the history
	found, before := lines()
	require.Equal(t, []contract.Line{{Group: "first", Topic: "orders"}}, found)
	for range 20 {
		guest := outmill.Registration{Group: "guest", Topics: outmill.Topics{Include: []string{"orders"}}}
		require.NoError(t, s.RegisterGroup(t.Context(), guest))
		_, err := s.DropGroup(t.Context(), "guest")
		require.NoError(t, err)
	}
	lines()
	found, after := lines()
	require.Equal(t, []contract.Line{{Group: "first", Topic: "orders"}}, found)
	require.Equal(t, before, after)
}
