package driver

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/postgres/internal/driver/internal/segments"
)

// cpu is the processor time of this process and of the transaction's backend.
func (t *logTx) cpu() time.Duration {
	var own syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &own)
	used := time.Duration(own.Utime.Nano() + own.Stime.Nano())
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", t.Conn().PgConn().PID()))
	if err == nil {
		on, _ := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		used += time.Duration(on)
	}
	return used
}

// fill appends rows of some 340 bytes with numbers as keys.
func (w *logWorld) fill(segment, from, n int) {
	w.Helper()
	_, err := w.pool.Exec(w.ctx, w.names.in(fmt.Sprintf(`INSERT INTO {p:log_%d} (created_at, id, topic, key, metadata, payload)
		SELECT 1, gen_random_uuid(), $1, 'key' || g %% 1000, '{"a":"b"}', decode(repeat('78', 250), 'hex')
		FROM generate_series($2::integer, $3::integer) AS g`,
		segment)), w.line.Name(), from, from+n-1)
	require.NoError(w, err)
}

// TestPairedSkips prints what claims of 5,000 and of 100 rows cost beside a chain without skips.
func TestPairedSkips(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("OUTMILL_PAIRS"))
	if err != nil {
		t.Skip("OUTMILL_PAIRS is the number of rounds")
	}
	db := newLogDB(t)
	worlds := map[string]*logWorld{}
	filled := func(name string, rows, skipped int, skips func(i int) bool) {
		w := db.world(t)
		w.register("a"+name, true)
		for i := 0; i < rows; i += 10_000 {
			w.fill(i/10_000%segments.Count, i, 10_000)
		}
		places, _ := w.places()
		var of []int64
		flush := func() { require.Len(t, w.skips("a"+name, of...), len(of)); skipped -= len(of); of = nil }
		for i, pos := range places {
			if skips(i) {
				if of = append(of, pos); len(of) == 10_000 {
					flush()
				}
			}
		}
		flush()
		require.Zero(t, skipped)
		singles, ranges := w.entries()
		t.Logf("%s: %d single places, %d ranges", name, singles, ranges)
		worlds[name] = w
	}
	const none = "none"
	filled(none, 200_000, 0, func(int) bool { return false })
	filled("every second", 200_000, 100_000, func(i int) bool { return i%2 == 1 })
	filled("one of 1,000", 200_000, 200, func(i int) bool { return i%1000 == 0 })
	filled("a million before", 1_010_000, 1_000_000, func(i int) bool { return i < 1_000_000 })
	filled("half, by hundreds", 200_000, 100_000, func(i int) bool { return i/100%2 == 1 })
	stamp := worlds["half, by hundreds"].stamp
	for _, want := range []int{5000, 100} {
		found := map[string][]time.Duration{}
		for round := range rounds + 2 {
			for name, w := range worlds {
				w.stamp = stamp
				tx := w.begin()
				before := tx.cpu()
				p := w.page(tx, w.lineOf("a"+name), want)
				require.Len(t, p.rows, want, name)
				page := tx.cpu() - before
				w.takeOf(tx, p, nil)
				used := tx.cpu() - before
				if round == 0 { // the cursor moves once
					t.Logf("first claim of %d, %s: %v", want, name, used)
					w.commit(tx)
					continue
				}
				require.NoError(t, tx.Rollback(w.ctx))
				if round > 1 {
					found[name] = append(found[name], used)
					found[name+", page"] = append(found[name+", page"], page)
				}
			}
		}
		median := func(name string) time.Duration {
			slices.SortFunc(found[name], cmp.Compare[time.Duration])
			return found[name][len(found[name])/2]
		}
		for name := range worlds {
			page := name + ", page"
			t.Logf("claim of %d, %s: %v, %.2f; its page %v, %.2f", want, name, median(name), float64(median(name))/float64(median(none)),
				median(page), float64(median(page))/float64(median(none+", page")))
		}
	}
}
