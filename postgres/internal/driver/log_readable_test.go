package driver

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// shownChain is a row of log_chains, with the id that it makes of a row of each event.
type shownChain struct {
	chain  int64
	group  string
	unread bool
	begin  logMark
	ids    []outmill.WorkItemID
}

// TestLogReadable_Chains folds histories in the database, as the view for people does, and in the driver.
func TestLogReadable_Chains(t *testing.T) {
	t.Parallel()
	db := newLogDB(t)
	ctx := t.Context()
	_, err := db.pool.Exec(ctx, db.names.in(logFunctions+logReadable), pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		w := &registrations{}
		group := rapid.SampledFrom([]string{"a", "b", "Ü 1", "d"})
		living := func(t *rapid.T) int { return drawLiving(t, w.readings) }
		t.Repeat(map[string]func(*rapid.T){
			"register": func(t *rapid.T) {
				i := w.begin(group.Draw(t, "group"), rapid.Bool().Draw(t, "takes"),
					rapid.SampledFrom([][]string{nil, {orders}, {"ord*", "others"}, {"others"}}).Draw(t, "topics")...)
				w.readings[i].begin = logMark{pos: w.events, seen: "10:20:"}
			},
			"take": func(t *rapid.T) {
				if i := living(t); w.readings[i].takes == 0 {
					w.take(i)
				}
			},
			"drop": func(t *rapid.T) {
				name, dropping := group.Draw(t, "group"), rapid.Bool().Draw(t, "dropping")
				for i, r := range w.readings {
					if r.group == name && r.ended == 0 {
						w.end(i)
						w.readings[i].dropping = dropping
					}
				}
			},
			"end": func(t *rapid.T) {
				i := living(t)
				w.end(i)
				w.readings[i].end = logMark{pos: w.events, seen: "30:40:35"}
			},
			"sweep": func(*rapid.T) {
				for i, r := range w.readings {
					if r.ended > 0 && r.swept == 0 && !r.dropping {
						w.sweep(i)
					}
				}
			},
		})
		db.setReadings(t, w.readings)
		row := outmill.NewWorkItemID()
		require.Equal(t, foldedChains(w, row), db.foldedChains(t, w.events, row))
	})
}

func (db *logDB) setReadings(t *rapid.T, readings []logReading) {
	batch := &pgx.Batch{}
	batch.Queue(db.names.in("DELETE FROM {p:readings}"))
	for _, r := range readings {
		topics, err := json.Marshal(r.topics)
		require.NoError(t, err)
		batch.Queue(db.names.in(`INSERT INTO {p:readings}
			(number, grp, topics, takes, ended, swept, dropping, begin_pos, begin_seen, end_pos, end_seen)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, nullif($9::text, '')::pg_snapshot, $10, nullif($11::text, '')::pg_snapshot)`),
			r.number, r.group, string(topics), r.takes, r.ended, r.swept, r.dropping, r.begin.pos, r.begin.seen, r.end.pos, r.end.seen)
	}
	require.NoError(t, db.pool.SendBatch(t.Context(), batch).Close())
}

// foldedChains are those of the driver.
func foldedChains(w *registrations, row outmill.WorkItemID) (all []shownChain) {
	h := &logHistory{readings: w.readings}
	c := h.chains(orders)
	line := driver.LineOf("", orders)
	for _, chain := range c.known {
		l := h.line(line, chain)
		shown := shownChain{chain: chain, begin: l.begin}
		for event := range w.events + 1 {
			shown.ids = append(shown.ids, l.masks.id(chain, row, event))
		}
		for _, group := range append(slices.Sorted(maps.Keys(c.of)), "") {
			if u := h.unread(driver.LineOf(group, orders)); u != nil && u.chain == chain {
				shown.group, shown.unread = group, true
				all = append(all, shown)
			}
		}
		shown.group, shown.unread = c.worker(chain), false
		all = append(all, shown)
	}
	return all
}

// foldedChains are those of the database.
func (db *logDB) foldedChains(t *rapid.T, events int64, row outmill.WorkItemID) (all []shownChain) {
	rows, err := db.pool.Query(t.Context(), db.names.in(`SELECT c.chain, c.grp, c.unread, c.begin_pos, coalesce(c.begin_seen::text, ''),
		ARRAY(SELECT {p:log_copy_id}($2::text::uuid, e, c.events, c.masks)::text FROM generate_series(0, $1::bigint) AS e ORDER BY e)
		FROM {p:log_chains}('orders') WITH ORDINALITY AS c ORDER BY c.ordinality`), events, row.String())
	require.NoError(t, err)
	var shown shownChain
	var ids []string
	_, err = pgx.ForEachRow(rows, []any{&shown.chain, &shown.group, &shown.unread, &shown.begin.pos, &shown.begin.seen, &ids}, func() error {
		shown.ids = nil
		for _, text := range ids {
			id, err := outmill.ParseWorkItemID(text)
			if err != nil {
				return err
			}
			shown.ids = append(shown.ids, id)
		}
		all = append(all, shown)
		return nil
	})
	require.NoError(t, err)
	return all
}
