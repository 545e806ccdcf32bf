package driver

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// moved is a record that was a row of the log.
type moved struct {
	Text  string
	Group string
	Stage driver.Stage
	Owner string
	Claim int
	Place int64
}

// records are those of the topic, by place and group.
func (w *logWorld) records() []moved {
	w.Helper()
	rows, err := w.pool.Query(w.ctx, w.names.in(`SELECT convert_from(payload, 'UTF8'), grp, stage, owner, claims, seq FROM {p:records}
		WHERE topic = $1 ORDER BY seq, grp`), w.line.Name())
	require.NoError(w, err)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[moved])
	require.NoError(w, err)
	return list
}

// moving are the rows with the texts, as the group's chain has them.
func (w *logWorld) moving(group string, texts ...string) logMoving {
	w.Helper()
	rows := logMoving{}
	line := w.lineOf(group)
	for id, text := range w.texts {
		for _, wanted := range texts {
			if text == wanted {
				var pos int64
				require.NoError(w, w.pool.QueryRow(w.ctx, w.names.in("SELECT pos FROM {p:log} WHERE topic = $1 AND id = $2::text::uuid"),
					w.line.Name(), id.String()).Scan(&pos))
				rows[pos] = line.masks.id(line.chain, id, 0)
			}
		}
	}
	return rows
}

func TestLog_Moves(t *testing.T) {
	t.Parallel()
	db := newLogDB(t)
	for name, run := range map[string]func(w *logWorld){
		"a row of a batch moves with its lease, and the others stay in the batch": func(w *logWorld) {
			w.register("a", true)
			w.append("1", "2", "3")
			b, _ := w.claim("a", 9)
			tx := w.begin()
			places, err := tx.moveLeased(w.ctx, w.lineOf("a"), b, w.moving("a", "2"))
			require.NoError(w, err)
			require.Equal(w, b.places[1:2], places)
			again, err := tx.moveLeased(w.ctx, w.lineOf("a"), b, w.moving("a", "2"))
			require.NoError(w, err)
			require.Empty(w, again)
			w.commit(tx)
			require.Equal(w, []moved{{"2", "a", driver.Leased, "a", 1, b.places[1]}}, w.records())
			require.Equal(w, []int32{0, 2}, w.settle(b))
		},
		"batches whose leases have ended move, but for what is done": func(w *logWorld) {
			w.register("a", true)
			w.append("1", "2", "3", "4", "5")
			ended := func(now driver.Time, limit int) (moved int) {
				tx := w.begin()
				moved, err := tx.moveEnded(w.ctx, w.lineOf("a"), now, limit)
				require.NoError(w, err)
				w.commit(tx)
				return moved
			}
			w.until = 1
			b, _ := w.claim("a", 3)
			w.claim("a", 9)
			w.settle(b, 1)
			w.settle(b, 2)
			require.Zero(w, ended(0, 9))
			require.Equal(w, 1, ended(1, 1))
			require.Equal(w, 2, ended(1, 9))
			require.Zero(w, ended(1, 9))
			texts := []string{}
			for _, r := range w.records() {
				require.Equal(w, driver.Leased, r.Stage)
				texts = append(texts, r.Text)
			}
			require.Equal(w, []string{"1", "4", "5"}, texts)
		},
		"a move that is undone leaves the row where it was": func(w *logWorld) {
			w.register("a", true)
			w.append("1", "2")
			b, _ := w.claim("a", 1)
			tx := w.begin()
			leased, err := tx.moveLeased(w.ctx, w.lineOf("a"), b, w.moving("a", "1"))
			require.NoError(w, err)
			unread, err := tx.moveUnread(w.ctx, w.lineOf("a"), w.moving("a", "1", "2"))
			require.NoError(w, err)
			require.Len(w, append(leased, unread...), 2)
			require.NoError(w, tx.Rollback(w.ctx))
			require.Empty(w, w.records())
			require.Equal(w, []int32{0}, w.settle(b))
			w.requireClaims("a", "2")
		},
		"a row that is not read moves for one group, and the other reads it": func(w *logWorld) {
			w.register("a", true)
			w.register("b", true)
			w.append("1", "2")
			tx := w.begin()
			places, err := tx.moveUnread(w.ctx, w.lineOf("b"), w.moving("b", "2"))
			require.NoError(w, err)
			w.commit(tx)
			require.Equal(w, []moved{{"2", "b", driver.Ready, "", 0, places[0]}}, w.records())
			w.requireClaims("b", "1")
			w.requireClaims("a", "1", "2")
		},
		"two groups move one row, each with an id of its own": func(w *logWorld) {
			w.register("a", true)
			w.register("b", true)
			w.append("1")
			for _, group := range []string{"a", "b"} {
				b, _ := w.claim(group, 1)
				tx := w.begin()
				_, err := tx.moveLeased(w.ctx, w.lineOf(group), b, w.moving(group, "1"))
				require.NoError(w, err)
				w.commit(tx)
			}
			list := w.records()
			require.Len(w, list, 2)
			require.Equal(w, list[0].Place, list[1].Place)
		},
		"a row moves with all that it has, and nil stays nil": func(w *logWorld) {
			w.register("a", true)
			full := &outmill.Record{
				Payload: []byte{}, CorrelationID: "c", CausationID: "d", TraceParent: "t", TraceState: "s", DedupKey: "k",
			}
			tx := w.begin()
			for _, record := range []*outmill.Record{full, {}} {
				row := driver.NewRow{Record: record, Message: "m", Metadata: `{"a":"b"}`}
				row.ID, row.Line, row.Tenant, row.Created = outmill.NewWorkItemID(), w.line, "tenant", 5
				w.texts[row.ID] = map[bool]string{true: "nil", false: "full"}[record.Payload == nil]
				require.NoError(w, tx.append(w.ctx, []driver.NewRow{row}))
			}
			w.commit(tx)
			tx = w.begin()
			_, err := tx.moveUnread(w.ctx, w.lineOf("a"), w.moving("a", "nil", "full"))
			require.NoError(w, err)
			w.commit(tx)
			rows, err := w.pool.Query(w.ctx, w.names.in(`SELECT concat_ws(' ', payload IS NULL, tenant_id, created_at, due_at, message_id,
				correlation_id, causation_id, traceparent, tracestate, dedup_key, metadata)
				FROM {p:records} WHERE topic = $1 ORDER BY seq`), w.line.Name())
			require.NoError(w, err)
			got, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(w, err)
			require.Equal(w, []string{`f tenant 5 5 m c d t s k {"a":"b"}`, `t tenant 5 5 m {"a":"b"}`}, got)
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(db.world(t))
		})
	}
}
