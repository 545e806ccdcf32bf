package driver

import (
	"context"

	"github.com/outmill/outmill/engine/driver"
)

const (
	// sqlOpen has the next claim look at notes: something about their keys has changed.
	sqlOpen = `UPDATE {p:notes} SET blocker = '', look_at = 0, looks = 0 WHERE (blocker <> '' OR look_at <> 0 OR looks <> 0)
	AND (grp, topic, name) IN (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))`

	// sqlDrop deletes notes that hold nothing. A note that another claim has looked at since stays.
	sqlDrop = `DELETE FROM {p:notes} WHERE (grp, topic, name) IN (
	SELECT n.grp, n.topic, n.name FROM json_each(?1) AS j CROSS JOIN {p:notes} AS n
	ON n.grp = j.value ->> 0 AND n.topic = j.value ->> 1 AND n.name = j.value ->> 2 AND n.looks = j.value ->> 6)`

	// sqlNote is what a claim leaves of notes. Those of pauses are written without a look at them.
	sqlNote = `INSERT INTO {p:notes} AS n (grp, topic, name, blocker, head, look_at, looks)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6 FROM json_each(?1) WHERE true
ON CONFLICT (grp, topic, name) DO UPDATE SET blocker = excluded.blocker, look_at = excluded.look_at,
	looks = iif(n.name = excluded.blocker, n.looks + 1, excluded.looks),
	head = iif(n.name = excluded.blocker, min(n.head, excluded.head), excluded.head)`

	// sqlForget is for the notes of a group that is dropped.
	sqlForget = `DELETE FROM {p:notes} WHERE grp = ?1`
)

func noteList(notes []driver.Note) string {
	return listOf(notes, func(n *driver.Note) [7]any {
		return [7]any{n.Group, n.Line.Name(), n.Name, n.Blocker, n.Head, int64(n.LookAt), n.Looks}
	})
}

func (t *tx) Forget(ctx context.Context, group string) error { return t.exec(ctx, sqlForget, group) }
