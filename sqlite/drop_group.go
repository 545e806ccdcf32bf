package sqlite

import (
	"context"
	"math"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const (
	sqlDropRegistrations = `DELETE FROM {p:groups} WHERE grp = ?1`
	sqlDropWorkers       = `DELETE FROM {p:workers} WHERE grp = ?1`

	sqlNoteDrop = `INSERT INTO {p:endings} (grp, ended_at, look_at, others) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (grp) DO UPDATE SET ended_at = excluded.ended_at, look_at = excluded.look_at, empty = 0, others = excluded.others`
	sqlNotedDrop  = `SELECT others FROM {p:endings} WHERE grp = ?1 AND others IS NOT NULL`
	sqlForgetDrop = `DELETE FROM {p:endings} WHERE grp = ?1 AND others IS NOT NULL`

	// sqlGiveBack makes the records as if they were appended without a group.
	sqlGiveBack = `UPDATE {p:records} SET grp = NULL, status = 'pending', owner = '', attempts = 0, expiries = 0, paused_by = NULL,
	next_at = iif(waits_for IS NULL, due_at, next_at),
	stage = iif(iif(waits_for IS NULL, due_at, next_at) > created_at, 3, 0),
	available_at = iif(iif(waits_for IS NULL, due_at, next_at) > created_at, iif(waits_for IS NULL, due_at, next_at), NULL)
WHERE seq IN (SELECT value FROM json_each(?1))`

	sqlSettledOfGroup = `SELECT seq FROM {p:records} INDEXED BY {p:settled} WHERE grp = ?1 AND stage = 6 LIMIT ?2`
	sqlDropLanes      = `DELETE FROM {p:lanes} WHERE grp = ?1 AND NOT EXISTS (SELECT 1 FROM {p:records} AS r INDEXED BY {p:held_key}
	WHERE r.grp = ?1 AND r.topic = {p:lanes}.topic AND r.key = {p:lanes}.key AND r.stage = 1)`
)

// DropGroup removes the group's registrations, and gives back or deletes its records, 1,000 in a
// transaction. See outmill.Inspector. If the group registers during the call, it keeps what it
// still has.
func (s *Store) DropGroup(ctx context.Context, group string) (outmill.Dropped, error) {
	const operation = "drop group"
	group = storekit.GroupOf(group)
	if err := storekit.CheckGroup(group); err != nil {
		return outmill.Dropped{}, s.explain(ctx, operation, err)
	}
	d := &drop{s, operation, group}
	dropped, err := storekit.GroupDrop{Begin: d.begin, Topics: d.topics, GiveBack: d.giveBack, Delete: d.delete,
		DeleteSettled: d.deleteSettled, End: d.end}.Run(ctx)
	if dropped.GivenBack > 0 {
		s.waker.notifier.Notify()
	}
	return dropped, err
}

// drop has the steps of a drop.
type drop struct {
	s                *Store
	operation, group string
}

func (d *drop) begin(ctx context.Context) (others storekit.Selections, err error) {
	err = d.s.write(ctx, d.operation, func(ctx context.Context, t *txn) error {
		routes, err := t.routes(ctx)
		if err != nil {
			return err
		}
		var noted string
		goesOn, err := t.one(ctx, []any{&noted}, sqlNotedDrop, d.group)
		if err != nil {
			return err
		}
		if goesOn && !routes.Has(d.group) {
			others, err = storekit.ParseSelections(noted)
			return err
		}
		others = routes.Others(d.group)
		if _, err := t.exec(ctx, sqlNoteDrop, d.group, t.now, int64(math.MaxInt64), others.String()); err != nil {
			return err
		}
		_, err = t.execAll(ctx, []string{sqlDropRegistrations, sqlDropWorkers}, d.group)
		if err == nil {
			_, err = t.exec(ctx, sqlGroupsChanged)
		}
		return err
	})
	return others, err
}

func (d *drop) topics(ctx context.Context) (topics []string, err error) {
	err = d.s.read(ctx, d.operation, func(ctx context.Context, t *txn) error {
		routes, err := t.routes(ctx)
		if err != nil || routes.Has(d.group) {
			return err
		}
		topics, err = t.texts(ctx, sqlUndeliveredTopics, d.group)
		return err
	})
	return topics, err
}

// step runs one step, unless the group has registered again.
func (d *drop) step(ctx context.Context, work func(ctx context.Context, t *txn) (int, error)) (done int, more bool, err error) {
	err = d.s.writeSteps(ctx, d.operation, func(ctx context.Context, t *txn) error {
		done = 0
		routes, err := t.routes(ctx)
		if err == nil && !routes.Has(d.group) {
			done, err = work(ctx, t)
		}
		return err
	})
	if err != nil {
		return 0, false, err
	}
	return done, done == storekit.DropAtOnce, nil
}

func (d *drop) giveBack(ctx context.Context, topic string) (done int, more bool, err error) {
	return d.step(ctx, func(ctx context.Context, t *txn) (int, error) {
		seqs, err := t.seqs(ctx, sqlUndelivered, d.group, topic, int64(math.MaxInt64), storekit.DropAtOnce)
		if err == nil && len(seqs) > 0 {
			_, err = t.exec(ctx, sqlGiveBack, seqList(seqs))
		}
		return len(seqs), err
	})
}

func (d *drop) delete(ctx context.Context, topic string) (done int, more bool, err error) {
	return d.step(ctx, func(ctx context.Context, t *txn) (int, error) {
		return t.dropUndelivered(ctx, d.group, topic, math.MaxInt64, storekit.DropAtOnce)
	})
}

func (d *drop) deleteSettled(ctx context.Context) (done int, more bool, err error) {
	return d.step(ctx, func(ctx context.Context, t *txn) (int, error) {
		seqs, err := t.seqs(ctx, sqlSettledOfGroup, d.group, storekit.DropAtOnce)
		if err == nil && len(seqs) > 0 {
			_, err = t.exec(ctx, sqlDelete, seqList(seqs))
		}
		return len(seqs), err
	})
}

func (d *drop) end(ctx context.Context) error {
	return d.s.write(ctx, d.operation, func(ctx context.Context, t *txn) error {
		_, err := t.execAll(ctx, []string{sqlForgetDrop, sqlDropLanes}, d.group)
		return err
	})
}
