package postgres_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
)

// The rights that roles need in addition to those of rights_test.go once the log is on. Some
// need none.
var (
	logPublisherRights = publisherRights.and(rights{
		"log":                      {"INSERT"},
		"SEQUENCE records_seq_seq": {"USAGE"},
	})
	logNamerRights = logPublisherRights.and(rights{
		"log":     {"SELECT"},
		"batches": {"SELECT"},
		"ended":   {"SELECT"},
		"late":    {"SELECT"},
	})
	logStarterRights = starterRights.and(rights{
		"log":                      {"INSERT", "SELECT (id)"},
		"SEQUENCE records_seq_seq": {"USAGE"},
	})
	logWorkerRights = workerRights.and(rights{
		"records":                  {"INSERT"},
		"log":                      {"SELECT", "DELETE"},
		"batches":                  {"SELECT", "INSERT", "UPDATE"},
		"ended":                    {"SELECT", "INSERT"},
		"late":                     {"SELECT", "INSERT", "UPDATE", "DELETE"},
		"SEQUENCE records_seq_seq": {"SELECT"},
	})
	logReaderRights = readerRights.and(rights{
		"log":     {"SELECT"},
		"batches": {"SELECT"},
		"ended":   {"SELECT"},
		"late":    {"SELECT"},
	})
	logOperatorRights = operatorRights.and(rights{
		"records":                  {"INSERT"},
		"log":                      {"SELECT", "DELETE"},
		"batches":                  {"SELECT", "INSERT", "UPDATE"},
		"ended":                    {"SELECT", "INSERT"},
		"late":                     {"SELECT", "DELETE"},
		"SEQUENCE records_seq_seq": {"SELECT"},
	})
	// upkeepRights are the rights of a role that does only the upkeep of the segments.
	upkeepRights = rights{
		"meta":                     {"SELECT", "UPDATE"},
		"records":                  {"SELECT", "INSERT"},
		"log":                      {"SELECT"},
		"log_0":                    {"SELECT", "TRUNCATE"},
		"log_1":                    {"SELECT", "TRUNCATE"},
		"batches":                  {"SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE"},
		"ended":                    {"SELECT", "INSERT", "DELETE", "TRUNCATE"},
		"upkeep":                   {"SELECT", "UPDATE"},
		"late":                     {"SELECT", "DELETE"},
		"retired":                  {"SELECT", "INSERT", "UPDATE", "DELETE"},
		"SEQUENCE records_seq_seq": {"SELECT"},
	}
)

func TestStore_LogRights(t *testing.T) {
	t.Parallel()

	t.Run("with a log roles need no more than the rights that are named", func(t *testing.T) {
		t.Parallel()
		requireRights(t, postgres.LaneLog, map[string]ruledRole{
			"publisher":            {logPublisherRights, usedByLogPublisher},
			"publisher of old ids": {logNamerRights, usedByNamer},
			"starter of joins":     {logStarterRights, usedByLogStarter},
			"worker":               {logWorkerRights, usedByLogWorker},
			"finisher of joins": {logWorkerRights.and(rights{"dedup": {"INSERT"}, "join_members": {"INSERT"}, "log": {"INSERT"},
				"SEQUENCE records_seq_seq": {"USAGE"}}), usedByLogFinisher},
			"operator":            {logOperatorRights, usedByLogOperator},
			"reader":              {logReaderRights, usedByLogReader},
			"who does the upkeep": {upkeepRights, usedByUpkeep},
		})
	})

	t.Run("functions of the log need a right where it was revoked from everybody", func(t *testing.T) {
		testenv.Long(t, "the right to each function of the log")
		t.Parallel()
		database, admin, super := ruled(t, postgres.LaneLog)
		role, roleURL := newRole(t, admin, database)
		logWorkerRights.and(logReaderRights).grant(t, admin, role)
		store := newStore(t, connect(t, roleURL), postgres.Config{})
		use := func() error {
			return firstOf(
				func() error { return usedByLogWorker(t, store, super) },
				func() error { return usedByReader(t, store, super) },
				func() error {
					store.LookAgain()
					many := claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone)
					many.Topics = hundreds()
					_, err := store.Claim(t.Context(), many)
					return err
				},
			)
		}
		require.NoError(t, use())
		for _, function := range []string{"log_due", "log_due_from", "log_ready_at", "log_late", "log_unfinished", "log_passed", "log_stale",
			"log_newest", "log_in_work", "log_first_line"} {
			execute(t, admin, "REVOKE EXECUTE ON FUNCTION outmill."+function+" FROM PUBLIC")
			requireNoRight(t, use(), "EXECUTE of "+function)
			execute(t, admin, "GRANT EXECUTE ON FUNCTION outmill."+function+" TO "+role)
			require.NoError(t, use())
		}
	})

	t.Run("a worker that may not truncate works and leaves the segments to others", func(t *testing.T) {
		t.Parallel()
		database, admin, super := ruled(t, postgres.LaneLog)
		role, roleURL := newRole(t, admin, database)
		logWorkerRights.grant(t, admin, role)
		store := newStore(t, connect(t, roleURL), postgres.Config{})
		require.NoError(t, usedByLogWorker(t, store, super))
		emptied(t, super)
		require.NoError(t, super.Append(t.Context(), made("last", "x", 3)...))
		require.NoError(t, super.Ack(t.Context(), "", leasesOf(claimed(t, super, claimOf(outmill.NewOwnerToken(), 3, outmill.OrderNone)))))
		execute(t, admin, "UPDATE outmill.meta SET segment = 1")
		more, err := store.Maintain(t.Context())
		require.NoError(t, err)
		require.False(t, more)
		require.Equal(t, 3, segmentRows(t, super, 0))
		err = store.TendSegments(t.Context())
		require.ErrorContains(t, err, "permission denied")
		require.NoError(t, usedByLogWorker(t, store, super))
	})

	t.Run("a publisher may say that it wants the log where it is on", func(t *testing.T) {
		t.Parallel()
		database, admin, _ := ruled(t, postgres.LaneLog)
		role, roleURL := newRole(t, admin, database)
		logPublisherRights.grant(t, admin, role)
		store := newStore(t, connect(t, roleURL), postgres.Config{Lane: postgres.LaneLog})
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, pgx.BeginFunc(t.Context(), store.Pool(), func(tx pgx.Tx) error {
			return store.Append(store.WithTx(t.Context(), tx), made("orders", "x", 3)...)
		}))
	})
}

func usedByLogPublisher(t *testing.T, store, super *postgres.Store) error {
	ctx := t.Context()
	require.NoError(t, super.RegisterGroup(ctx, outmill.Registration{Group: readers}))
	return firstOf(
		func() error { return usedByPublisher(t, store, super) },
		func() error { return store.Append(ctx, made("orders", "many", 500)...) },
		func() error {
			return store.Append(ctx, &outmill.Record{Topic: "orders", Delay: time.Hour})
		},
	)
}

// usedByLogStarter also publishes a step that is delayed, and goes to the records.
func usedByLogStarter(t *testing.T, store, super *postgres.Store) error {
	require.NoError(t, super.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
	join := &roles.Join{ExpectedSteps: 1}
	require.NoError(t, super.StartJoin(t.Context(), join))
	return firstOf(
		func() error {
			return store.Append(t.Context(), &outmill.Record{Topic: "steps", Delay: time.Hour, Joins: []outmill.JoinID{join.ID}})
		},
		func() error { return usedByLogPublisher(t, store, super) },
		func() error { return usedByStarter(t, store, super) },
	)
}

func usedByLogFinisher(t *testing.T, store, super *postgres.Store) error {
	return firstOf(
		func() error { return usedByLogWorker(t, store, super) },
		func() error { return usedByFinisher(t, store, super) },
	)
}

// emptied leaves the store without records, and with one group.
func emptied(t *testing.T, super *postgres.Store) {
	t.Helper()
	for _, table := range []string{"log", "batches", "late", "records", "lanes"} {
		execute(t, super.Pool(), "TRUNCATE outmill."+table)
	}
	groups, err := super.Groups(t.Context())
	require.NoError(t, err)
	for _, g := range groups {
		_, err := super.DropGroup(t.Context(), g.Group)
		require.NoError(t, err)
	}
	require.NoError(t, super.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
}

// usedByNamer appends ids that were made long ago, of which the log has one.
func usedByNamer(t *testing.T, store, super *postgres.Store) error {
	ctx := t.Context()
	emptied(t, super)
	require.NoError(t, super.Append(ctx, made("taken", "x", 1)...))
	require.Len(t, claimed(t, super, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone, "taken")), 1)
	taken, free := made("orders", "old", 1), made("orders", "old", 1)
	for _, r := range []*outmill.Record{taken[0], free[0]} {
		r.ID = outmill.NewWorkItemID()
		r.ID[0]--
	}
	execute(t, super.Pool(), "UPDATE outmill.log SET id = $1 WHERE topic = 'taken'", taken[0].ID)
	return firstOf(
		func() error { return usedByLogPublisher(t, store, super) },
		func() error { return store.Append(ctx, free...) },
		func() error {
			err := store.Append(ctx, taken...)
			require.Error(t, err)
			if strings.Contains(err.Error(), "has this id") {
				return nil
			}
			return err
		},
	)
}

// usedByLogWorker also extends a part of a batch, lets a lease end, and finds records that were
// committed late.
func usedByLogWorker(t *testing.T, store, super *postgres.Store) error {
	ctx := t.Context()
	topic, late := withOpenAppend(t, super)
	defer func() { _ = late.Rollback(context.WithoutCancel(ctx)) }()
	var found []*outmill.Record
	claim := func(limit int, lease time.Duration, more ...string) func() error {
		return func() (err error) {
			req := claimOf(outmill.NewOwnerToken(), limit, outmill.OrderNone, append(more, topic)...)
			req.Lease = lease
			found, err = store.Claim(ctx, req)
			return err
		}
	}
	return firstOf(
		claim(5, time.Hour),
		func() error { return late.Commit(ctx) },
		func() error { _, err := store.Extend(ctx, 2*time.Hour, leasesOf(found[:1])); return err },
		// If a selection was not claimed in the last 100 ms, the claim searches for topics
		// first, and for late transactions in them.
		claim(3, time.Microsecond, "another"),
		claim(3, time.Microsecond),
		func() error { _, err := store.ReapExpired(ctx, 10); return err },
		claim(100, time.Hour),
		func() error { return store.Ack(ctx, "", leasesOf(found)) },
		func() error { return usedByWorker(t, store, super) },
	)
}

// withOpenAppend returns a topic with 20 records of a transaction that is open, and 5 records that a
// claim hands out although they were appended later.
func withOpenAppend(t *testing.T, super *postgres.Store) (topic string, late pgx.Tx) {
	t.Helper()
	topic = outmill.NewWorkItemID().String()
	emptied(t, super)
	late, err := super.Pool().Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, super.Append(super.WithTx(t.Context(), late), made(topic, "late", 20)...))
	require.NoError(t, super.Append(t.Context(), made(topic, "passed", 5)...))
	return topic, late
}

// usedByLogReader also counts records that were committed late, of which a claim has taken some.
func usedByLogReader(t *testing.T, store, super *postgres.Store) error {
	ctx := t.Context()
	topic, late := withOpenAppend(t, super)
	defer func() { _ = late.Rollback(context.WithoutCancel(ctx)) }()
	require.Len(t, claimed(t, super, claimOf(outmill.NewOwnerToken(), 5, outmill.OrderNone, topic)), 5)
	require.NoError(t, late.Commit(ctx))
	require.Len(t, claimed(t, super, claimOf(outmill.NewOwnerToken(), 3, outmill.OrderNone, "another", topic)), 3)
	return usedByReader(t, store, super)
}

// usedByLogOperator also deletes records of the log, claimed or not, and drops a group that has
// records there.
func usedByLogOperator(t *testing.T, store, super *postgres.Store) error {
	ctx := t.Context()
	require.NoError(t, super.RegisterGroup(ctx, outmill.Registration{Group: readers}))
	records := made(outmill.NewWorkItemID().String(), "x", 4)
	require.NoError(t, super.Append(ctx, records...))
	require.Len(t, claimed(t, super, claimOf(outmill.NewOwnerToken(), 2, outmill.OrderNone, records[0].Topic)), 2)
	return firstOf(
		func() error { _, err := store.Delete(ctx, records[0].ID, records[2].ID); return err },
		func() error { return usedByOperator(t, store, super) },
	)
}

// usedByUpkeep has a full segment, one without needed records, and one with needed records.
func usedByUpkeep(t *testing.T, store, super *postgres.Store) error {
	ctx := t.Context()
	write := func(segment int, topic string) {
		execute(t, super.Pool(), fmt.Sprintf("UPDATE outmill.meta SET segment = %d", segment))
		records := made(topic, "x", 700)
		for _, r := range records {
			r.Payload = make([]byte, 7000)
			_, _ = rand.Read(r.Payload)
		}
		require.NoError(t, super.Append(ctx, records...))
	}
	reading := func(topic string) {
		req := claimOf(outmill.NewOwnerToken(), 1000, outmill.OrderNone, topic)
		require.NoError(t, super.Ack(ctx, "", leasesOf(claimed(t, super, req))))
	}
	// The server's own upkeep would now and then refuse a lock, and hide a missing right.
	execute(t, super.Pool(), `DO $$ DECLARE o text; BEGIN
	FOR o IN SELECT c.oid::regclass FROM pg_class AS c WHERE relnamespace = 'outmill'::regnamespace AND relkind = 'r' LOOP
		EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', o);
	END LOOP;
END $$`)
	emptied(t, super)
	write(0, "read")
	reading("read")
	write(1, "unread")
	// Make no claim, because it might do the upkeep.
	write(2, "last")
	execute(t, super.Pool(), "UPDATE outmill.meta SET rotated_at = rotated_at - interval '1 hour'")
	execute(t, super.Pool(), "UPDATE outmill.upkeep SET turn = 0")
	upkeep := func() error {
		return firstOf(
			func() error {
				// The upkeep does not report missing rights, because it leaves the work to
				// others.
				var missing error
				if _, err := store.Maintain(ctx); err != nil {
					return err
				}
				if turn := valueOf[int64](t, super.Pool(), "SELECT turn FROM outmill.upkeep"); turn == 0 {
					_, missing = store.Pool().Exec(ctx, "UPDATE outmill.upkeep SET turn = 1 WHERE only_row")
				}
				return missing
			},
			func() error { return store.TendSegments(ctx) },
			func() error { return store.DeleteBatches(ctx) },
			func() error { return store.TidyBatches(ctx) },
			func() error { return store.ForgetLines(ctx) },
			func() error { return store.TendSegments(ctx) },
		)
	}
	tended := func() bool {
		return segmentRows(t, super, 0) == 0 && segmentRows(t, super, 1) == 0 && segmentRows(t, super, 2) == 700 &&
			valueOf[int](t, super.Pool(), "SELECT count(*) FROM outmill.records WHERE topic = 'unread'") == 700 &&
			valueOf[int](t, super.Pool(), "SELECT segment FROM outmill.meta") != 2
	}
	// A segment waits for the transactions of all databases of the server, also those of other
	// tests.
	err := upkeep()
	for began := time.Now(); err == nil && !tended(); err = upkeep() {
		require.Less(t, time.Since(began), patience, "the segments hold %d, %d, and %d records", segmentRows(t, super, 0),
			segmentRows(t, super, 1), segmentRows(t, super, 2))
	}
	if err == nil {
		return nil
	}
	// Callers see missing rights only in the log.
	return fmt.Errorf("upkeep, of which no caller hears what rights it takes: %w", err)
}
