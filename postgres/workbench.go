package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

const (
	// sqlLetters returns those of the dead records that no other record has parked, each with
	// the number of records that are parked behind it.
	sqlLetters = `SELECT r.id, CASE WHEN r.parked OR r.key <> '' AND r.last_error IS NOT DISTINCT FROM $2::text THEN
	(SELECT count(*) FROM (SELECT 1 FROM {p:records} AS w WHERE ` + sameKey + ` AND w.parked AND w.seq > r.seq
		ORDER BY hashtextextended(w.key, hashtextextended(w.topic, 0)), w.seq LIMIT $3::bigint) AS w) ELSE 0 END
FROM {p:records} AS r WHERE r.id = ANY ($1::text[]::uuid[]) AND r.stage + 0 = 7
	AND (NOT r.parked OR r.seq = (SELECT w.seq FROM {p:records} AS w WHERE ` + sameKey + ` AND w.parked
		ORDER BY hashtextextended(w.key, hashtextextended(w.topic, 0)), w.seq LIMIT 1))
ORDER BY r.id`

	// sameKey is true for a record w of the key of r.
	sameKey = `hashtextextended(w.key, hashtextextended(w.topic, 0)) = hashtextextended(r.key, hashtextextended(r.topic, 0))
		AND w.grp IS NOT DISTINCT FROM r.grp AND w.topic IS NOT DISTINCT FROM r.topic AND w.key IS NOT DISTINCT FROM r.key`

	sqlGetAndLock = sqlGet + ` FOR UPDATE OF r`

	sqlEdit = `UPDATE {p:records} SET payload = $2::bytea, metadata = nullif($3::text, '')::jsonb, size = $4::integer
WHERE id = $1::text::uuid`

	// sqlHead returns whether a record parks its key, whether a skip of it has begun, when what it
	// releases is due, and whether an earlier record parks the key.
	sqlHead = `SELECT r.parked, h.begun, CASE WHEN h.begun THEN r.next_at ELSE statement_timestamp() END::text,
	coalesce((SELECT w.seq < r.seq FROM {p:records} AS w WHERE ` + sameKey + ` AND w.parked
		ORDER BY hashtextextended(w.key, hashtextextended(w.topic, 0)), w.seq LIMIT 1), false)
FROM {p:records} AS r CROSS JOIN LATERAL (SELECT r.key <> '' AND r.last_error IS NOT DISTINCT FROM $2::text AS begun) AS h
WHERE r.id = $1::text::uuid`

	sqlBeginSkip = `UPDATE {p:records} SET parked = false, last_error = $2::text, next_at = $3::text::timestamptz WHERE id = $1::text::uuid`

	sqlRemove = `WITH gone AS (DELETE FROM {p:records} WHERE id = $1::text::uuid RETURNING grp, topic, key),
opened AS (` + openLanesOf + `)
SELECT count(*) FROM gone`
)

// sqlReleaseParked requeues the first $4 records that are parked with a key behind the place $6.
var sqlReleaseParked = `WITH ` + requeued(`ARRAY(SELECT id FROM {p:records} WHERE `+ofKey(`$3::text`)+` AND parked AND seq > $6::bigint
	ORDER BY hashtextextended(key, hashtextextended(topic, 0)), seq LIMIT $4::bigint)`, `$5::text::timestamptz`, "")

// workbench provides the DeadLetters, Edit, Skip and Audited of roles.Repairs.
type workbench = storekit.WorkbenchEngine

// bench is the store as seen by the workbench.
type bench struct{ finding }

// Letters returns the dead records that no other record has parked.
func (b bench) Letters(ctx context.Context, operation string, ids []outmill.WorkItemID) (letters []roles.DeadLetter, err error) {
	err = b.write(ctx, operation, func(ctx context.Context, t *txn) (err error) {
		letters, err = t.letters(ctx, ids)
		return err
	})
	return letters, err
}

func (t *txn) letters(ctx context.Context, ids []outmill.WorkItemID) ([]roles.DeadLetter, error) {
	var heads []string
	waiting := map[outmill.WorkItemID]int{}
	args := []any{idTexts(ids), storekit.SkippedError, roles.MaxWaiting}
	err := t.run(ctx, step{template: sqlLetters, args: args, row: func(scan func(...any) error) error {
		var id pgtype.UUID
		var n int
		err := scan(&id, &n)
		heads = append(heads, outmill.WorkItemID(id.Bytes).String())
		waiting[id.Bytes] = n
		return err
	}})
	if err != nil {
		return nil, err
	}
	var found []placed
	if err := t.finish(ctx, step{template: sqlRecordsOf, args: []any{heads}, row: collect(&found)}); err != nil {
		return nil, err
	}
	var letters []roles.DeadLetter
	for _, r := range recordsOf(found) {
		// One that was requeued between the two statements is not dead any more.
		if r.Status == outmill.StatusDead {
			letters = append(letters, roles.DeadLetter{Record: r, Waiting: waiting[r.ID]})
		}
	}
	return letters, nil
}

// onDead runs fn with a record that it has locked, if check accepts the record as it was before.
// A record of the log is not dead, so check refuses it.
func (b bench) onDead(ctx context.Context, operation string, id outmill.WorkItemID, check func(*outmill.Record) error,
	lock func(*outmill.Record) []step, fn func(ctx context.Context, t *txn, of placed) error) error {
	args := []any{id.String()}
	seen, err := b.bothLanes(ctx, operation, step{template: sqlLogGet, args: args}, step{template: sqlGet, args: args})
	if err == nil && len(seen) == 0 {
		err = outmill.ErrNotFound
	}
	if err == nil && seen[0].record.Status != outmill.StatusDead {
		err = check(seen[0].record)
	}
	if err != nil {
		return b.explain(ctx, operation, err)
	}
	before := lock(seen[0].record)
	return b.durably(ctx, operation, func(ctx context.Context, t *txn) error {
		var found []placed
		err := t.run(ctx, append(before, step{template: sqlGetAndLock, args: args, row: collect(&found)})...)
		if err == nil && len(found) == 0 {
			err = outmill.ErrNotFound
		}
		if err != nil {
			return err
		}
		return fn(ctx, t, found[0])
	})
}

// EditDead changes a dead record.
func (b bench) EditDead(ctx context.Context, operation string, id outmill.WorkItemID,
	change func(before *outmill.Record) (*outmill.Record, roles.AuditEntry, error)) error {
	refuse := func(r *outmill.Record) error { _, _, err := change(r); return err }
	noLock := func(*outmill.Record) []step { return nil }
	return b.onDead(ctx, operation, id, refuse, noLock, func(ctx context.Context, t *txn, of placed) error {
		after, entry, err := change(of.record)
		if err != nil {
			return err
		}
		if after == nil {
			return t.finish(ctx)
		}
		metadata, err := storekit.MetadataText(after.Metadata)
		if err != nil {
			return err
		}
		if err := rowLimits.Check(-1, after, metadata); err != nil {
			return err
		}
		return t.finish(ctx, step{template: sqlEdit, args: []any{id.String(), after.Payload, metadata, after.Size()}}, note(entry, 1))
	})
}

// SkipDead removes a dead record, or does a step of the release of what it has parked. Like
// Requeue, it waits for a running claim of the topic, which would otherwise park the records that
// it meets next.
func (b bench) SkipDead(ctx context.Context, operation string, id outmill.WorkItemID, nth int,
	check func(*outmill.Record) (roles.AuditEntry, error)) (skipped roles.Skipped, err error) {
	refuse := func(r *outmill.Record) error { _, err := check(r); return err }
	lock := func(r *outmill.Record) []step {
		if r.Key == "" || r.Group == "" {
			return nil
		}
		return lockTopics([]int64{b.lockOfTopic(r.Group, r.Topic)})
	}
	var counted []outmill.JoinID
	err = b.onDead(ctx, operation, id, refuse, lock, func(ctx context.Context, t *txn, of placed) error {
		entry, err := check(of.record)
		if err != nil {
			return err
		}
		skipped, err = t.skip(ctx, of, b.atOnce.Requeue(nth), entry, &counted)
		return err
	})
	if err != nil {
		return roles.Skipped{}, err
	}
	b.hurry(ctx, counted)
	if skipped.Released > 0 {
		b.wake()
	}
	return skipped, nil
}

// skip requeues up to limit records that are parked behind the record. If it finds fewer, these were
// the last, and it deletes the record. All of them become due at one time, which the record keeps, so that
// they become ready in the order of their places: claims between two steps may park the first
// ones again.
func (t *txn) skip(ctx context.Context, of placed, limit int, entry roles.AuditEntry, counted *[]outmill.JoinID,
) (skipped roles.Skipped, err error) {
	r := of.record
	var parked, begun, another bool
	var due string
	found := 0
	head := step{template: sqlHead, args: []any{r.ID.String(), storekit.SkippedError}, row: func(scan func(...any) error) error {
		return scan(&parked, &begun, &due, &another)
	}}
	if err := t.run(ctx, head); err != nil {
		return skipped, err
	}
	if (parked || begun) && !another {
		release := step{template: sqlReleaseParked, args: []any{r.Group, r.Topic, r.Key, limit, due, of.seq},
			row: func(scan func(...any) error) error { return scan(&skipped.Released, &found) }}
		if err := t.run(ctx, release); err != nil {
			return skipped, err
		}
	}
	end := step{template: sqlBeginSkip, args: []any{r.ID.String(), storekit.SkippedError, due}}
	changed := skipped.Released
	if found < limit {
		end = step{template: sqlRemove, args: []any{r.ID.String()}}
		skipped.Done, entry.After.Status = true, roles.AuditDeleted
		changed++
	}
	return skipped, t.finish(ctx, end, note(entry, changed), countSteps(counted))
}
