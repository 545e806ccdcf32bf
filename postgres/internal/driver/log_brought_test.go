package driver_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	contract "github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver"
)

// logged is a store with a log, its driver, and two groups that read the topic orders.
type logged struct {
	*engine.Engine
	driver *driver.Driver
	db     *pgxpool.Pool
}

func openLogged(t *testing.T) logged {
	t.Helper()
	return openLoggedWith(t, engine.Config{})
}

func openLoggedWith(t *testing.T, config engine.Config) logged {
	t.Helper()
	db := connect(t, postgrestest.Database(t), 4, func(c *pgxpool.Config) { c.ConnConfig.Tracer = tap{} })
	d := driver.New(driver.PoolOf(db), driver.Config{Name: "log", Schema: "outmill"})
	s := logged{engine.New(d, config), d, db}
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Ensure(t.Context()))
	for _, group := range []string{"first", "second"} {
		require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: group, Topics: outmill.Topics{Include: []string{"orders"}}}))
	}
	return s
}

// another is a driver of another process on the same schema.
func (s logged) another(t *testing.T) *driver.Driver {
	t.Helper()
	d := driver.New(driver.PoolOf(s.db), driver.Config{Name: "log", Schema: "outmill"})
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// ask asks for all of the content.
func (s logged) ask(group string) contract.Ask {
	return contract.Ask{
		Line: contract.Line{Group: group, Topic: "orders"}, Owner: outmill.NewOwnerToken().String(), Limit: 100, Keys: true, Lock: true,
		Want: contract.Metadata | contract.Payload, MaxBytes: 1 << 20, MaxRows: 100,
	}
}

func (s logged) page(t *testing.T, ask contract.Ask) contract.Page {
	t.Helper()
	page, _ := s.pageAndLoad(t, ask)
	return page
}

// pageAndLoad returns a page, and what Load returns of its rows.
func (s logged) pageAndLoad(t *testing.T, ask contract.Ask) (page contract.Page, loaded []contract.Content) {
	t.Helper()
	require.NoError(t, s.driver.Update(t.Context(), contract.Begin{}, func(tx contract.Tx) (err error) {
		if page, err = tx.Page(t.Context(), ask); err == nil {
			loaded, err = tx.Load(t.Context(), page.Ready, ask.Want)
		}
		return err
	}))
	return page, loaded
}

// What a page brings is what Load returns, whatever a row has.
func TestLogBrought_IsWhatLoadReturns(t *testing.T) {
	t.Parallel()
	s := openLogged(t)
	at := func(n int, change func(r *outmill.Record)) *outmill.Record {
		r := &outmill.Record{Topic: "orders", Key: fmt.Sprint(n), Payload: []byte(fmt.Sprint("payload ", n))}
		change(r)
		return r
	}
	require.NoError(t, s.Append(t.Context(),
		at(1, func(*outmill.Record) {}),
		at(2, func(r *outmill.Record) {
			r.MessageID, r.Metadata, r.CorrelationID, r.CausationID, r.TenantID = "a message", map[string]string{"a": "b"}, "c", "d", "e"
			r.TraceParent, r.DedupKey = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "f"
		}),
		at(3, func(r *outmill.Record) { r.Payload = nil }),
		at(4, func(r *outmill.Record) { r.Payload = []byte{} }),
		at(5, func(r *outmill.Record) { r.Payload = []byte(strings.Repeat("far from the row ", 10_000)) }),
		at(6, func(r *outmill.Record) { r.Metadata = map[string]string{"broken": "later"} }),
	))
	for n := range 3 {
		_, err := s.db.Exec(t.Context(), fmt.Sprintf(`UPDATE outmill.log_%d SET metadata = '[]' WHERE key = '6'`, n))
		require.NoError(t, err)
	}
	for _, want := range []contract.Want{0, contract.Metadata, contract.Payload, contract.Metadata | contract.Payload} {
		for _, group := range []string{"first", "second"} {
			ask := s.ask(group)
			ask.Want = want
			page, loaded := s.pageAndLoad(t, ask)
			require.Len(t, page.Ready, 6)
			if want == 0 {
				require.Empty(t, page.Contents)
				continue
			}
			for i, r := range page.Ready {
				require.Contains(t, page.Contents, r.ID, "%s, row %s", group, r.Key)
				require.Equal(t, loaded[i], page.Contents[r.ID], "%s, row %s", group, r.Key)
			}
			require.Equal(t, want&contract.Metadata != 0, loaded[5].Broken != "")
		}
	}
	without := s.ask("first")
	without.Lock = false
	require.Empty(t, s.page(t, without).Contents, "without the lock of the chain another transaction may change them")
}

// A page brings the first rows that fit together.
func TestLogBrought_IsBounded(t *testing.T) {
	t.Parallel()
	s := openLogged(t)
	for i, size := range []int{10, 3000, 500, 40_000, 1} {
		require.NoError(t, s.Append(t.Context(), &outmill.Record{Topic: "orders", Key: fmt.Sprint(i), Payload: make([]byte, size)}))
	}
	ask := s.ask("first")
	ready := s.page(t, ask).Ready
	require.Len(t, ready, 5)
	upto := func(n int) (bytes int) {
		for _, r := range ready[:n] {
			bytes += r.Size
		}
		return bytes
	}
	require.Greater(t, upto(5), 43_000)
	for n := range 6 {
		for _, more := range []int{0, 1} {
			if ask.MaxBytes = upto(n) - 1 + more; ask.MaxBytes < 0 {
				continue
			}
			page := s.page(t, ask)
			require.Equal(t, ready, page.Ready)
			require.Len(t, page.Contents, n-1+more, "%d bytes", ask.MaxBytes)
			for _, r := range ready[:n-1+more] {
				require.Contains(t, page.Contents, r.ID)
			}
		}
	}
	ask.MaxBytes, ask.MaxRows = 1<<20, 2
	page := s.page(t, ask)
	require.Len(t, page.Contents, 2)
	require.Contains(t, page.Contents, ready[1].ID)
}

// A record that stands before rows of the log is none of the page's contents, and rows that it pushes off the page have none.
func TestLogBrought_OnlyOfRowsOfThePage(t *testing.T) {
	t.Parallel()
	s := openLogged(t)
	for i := range 4 {
		require.NoError(t, s.Append(t.Context(), &outmill.Record{Topic: "orders", Key: fmt.Sprint(i), Payload: []byte{byte(i)}}))
	}
	ask := s.ask("second")
	moved := s.page(t, ask).Ready[1]
	require.NoError(t, s.driver.ToRecord(t.Context(), moved.ID))
	ask.Limit = 3
	page := s.page(t, ask)
	require.Len(t, page.Ready, 3)
	require.Equal(t, moved.ID, page.Ready[1].ID)
	require.Len(t, page.Contents, 2)
	for _, i := range []int{0, 2} {
		require.Equal(t, []byte{byte(i)}, page.Contents[page.Ready[i].ID].Record.Payload)
	}
}

// A transaction that runs again has what is true then.
func TestLogBrought_NotByThePageOfAnEarlierRun(t *testing.T) {
	t.Parallel()
	s := openLogged(t)
	require.NoError(t, s.Append(t.Context(), &outmill.Record{Topic: "orders", Key: "key", Payload: []byte("before")}))
	ask, runs := s.ask("second"), 0
	var applied contract.Applied
	var leased contract.Row
	require.NoError(t, s.driver.Update(t.Context(), contract.Begin{}, func(tx contract.Tx) error {
		if runs++; runs == 2 {
			require.NoError(t, s.driver.Update(t.Context(), contract.Begin{}, func(other contract.Tx) error {
				r, found, err := other.Lock(t.Context(), leased.ID)
				require.True(t, found)
				require.NoError(t, err)
				return other.Replace(t.Context(), contract.NewRow{Row: r, Record: &outmill.Record{Payload: []byte("behind")}})
			}))
		}
		page, err := tx.Page(t.Context(), ask)
		if err != nil {
			return err
		}
		require.Len(t, page.Ready, 1)
		leased = page.Ready[0]
		if runs == 1 {
			require.Equal(t, []byte("before"), page.Contents[leased.ID].Record.Payload)
			return &pgconn.PgError{Code: "40001"}
		}
		require.Empty(t, page.Contents)
		now := leased
		now.Stage, now.Owner, now.Wake, now.Claims = contract.Leased, ask.Owner, page.Now.After(time.Minute), 1
		applied, err = tx.Apply(t.Context(), contract.Changes{Rows: []contract.Change{{Was: leased, Now: now}}, Last: true, Want: ask.Want})
		return err
	}))
	require.Equal(t, 2, runs)
	require.Empty(t, applied.Lost)
	for _, c := range applied.Contents {
		require.Equal(t, []byte("behind"), c.Record.Payload)
	}
	read, err := s.driver.Read(t.Context(), []contract.Row{leased}, ask.Want)
	require.NoError(t, err)
	require.Equal(t, []byte("behind"), read[0].Record.Payload)
}

// A claim by key reads no content behind its page, if the page had room for it.
func TestLogBrought_ByAClaim(t *testing.T) {
	t.Parallel()
	s := openLogged(t)
	claimed := func(size int) (statements []string) {
		for i := range 3 {
			require.NoError(t, s.Append(t.Context(), &outmill.Record{Topic: "orders", Key: fmt.Sprint(i), Payload: make([]byte, size+i)}))
		}
		ctx, seen := tapped(t.Context())
		got, err := s.Claim(ctx, outmill.ClaimRequest{
			Owner: outmill.NewOwnerToken(), Group: "second", Limit: 10, Lease: time.Minute, Order: outmill.OrderKey,
		})
		require.NoError(t, err)
		require.Len(t, got, 3)
		leases := make([]outmill.Lease, len(got))
		for i, r := range got {
			require.Len(t, r.Payload, size+i)
			leases[i] = r.Lease()
		}
		require.NoError(t, s.Ack(t.Context(), "worker", leases))
		for _, values := range seen.list() {
			for _, value := range values {
				if text, ok := value.(string); ok && verb.MatchString(text) {
					statements = append(statements, text)
				}
			}
		}
		return statements
	}
	claimed(1)
	_, texts := s.driver.Texts()
	reads := func(text string) bool {
		return text == texts["log_content"] || text == texts["log_content_between"] || text == texts["load"]
	}
	require.False(t, slices.ContainsFunc(claimed(100), reads))
	require.True(t, slices.ContainsFunc(claimed(1<<20), reads), "what is larger than that is read behind the commit")
}
