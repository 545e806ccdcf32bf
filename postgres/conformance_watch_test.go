package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/outmill/outmill/postgres"
)

const heldWithoutLane = `SELECT coalesce(string_agg(r.message_id, ', '), '') FROM {records} AS r WHERE r.stage = 1
AND NOT EXISTS (SELECT 1 FROM {lanes} AS l WHERE l.grp = r.grp AND l.topic = r.topic AND l.key = r.key)`

// sqlTwice finds records that are in more than one place.
const sqlTwice = `SELECT coalesce(string_agg(e.of, ', '), '')
	FROM (SELECT message_id || ' of ' || grp || ' in ' || string_agg(of, ' and ') AS of
	FROM (` + sqlEverywhere + `) AS e GROUP BY id, message_id, grp HAVING count(*) > 1) AS e`

const lanesLeft = `SELECT coalesce(string_agg(l::text, ', '), '') FROM {lanes} AS l`

// Watch reports records that are held for ever and, in a log, records in two places.
func (h harness) Watch(ctx context.Context, fault func(error)) {
	if h.store.config.Lane != postgres.LaneLog {
		h.look(ctx, fault, "held without a lane", heldWithoutLane)
		return
	}
	var all sync.WaitGroup
	for what, query := range map[string]string{"held without a lane": heldWithoutLane, "twice": sqlTwice, "unsound": sqlUnsound} {
		all.Go(func() { h.look(ctx, fault, what, query) })
	}
	all.Go(func() { h.turnOver(ctx, fault) })
	all.Wait()
}

// look reports the rows that the query finds.
func (h harness) look(ctx context.Context, fault func(error), what, query string) {
	for ctx.Err() == nil {
		if err := h.finds(ctx, what, query); err != nil && ctx.Err() == nil {
			fault(err)
		}
		_ = pause(ctx, 20*time.Millisecond)
	}
}

func (h harness) finds(ctx context.Context, what, query string) error {
	var found string
	err := h.store.Pool().QueryRow(ctx, h.sql(query)).Scan(&found)
	if err == nil && found != "" {
		err = fmt.Errorf("%s: %s", what, found)
	}
	return err
}

// sql returns a statement on the store's tables, which are written {name}.
func (h harness) sql(statement string) string {
	return inSchema(h.store.config.Schema, statement)
}

// turnOver makes appends go from segment to segment, and truncates and evacuates the others,
// whether or not they are large enough.
func (h harness) turnOver(ctx context.Context, fault func(error)) {
	for ctx.Err() == nil {
		_, err := h.store.Pool().Exec(ctx, h.sql(`UPDATE {meta} SET segment = (segment + 1) % 3`))
		for segment := range 3 {
			_, truncated := h.store.Truncate(ctx, segment)
			err = errors.Join(err, truncated)
			if rand.N(20) == 0 {
				err = errors.Join(err, h.store.Evacuate(ctx, segment))
			}
		}
		fault(err)
		_ = pause(ctx, rand.N(30*time.Millisecond))
	}
}

// AtRest reports lanes that hold no record, and batches that are inconsistent.
func (h harness) AtRest() error {
	ctx := h.t.Context()
	return errors.Join(
		h.finds(ctx, "lanes", lanesLeft),
		h.finds(ctx, "unsound", sqlUnsound),
		h.finds(ctx, "unsound late lists", "SELECT coalesce(nullif(n, 0)::text, '') FROM ("+sqlUnsoundLate+") AS l(n)"))
}
