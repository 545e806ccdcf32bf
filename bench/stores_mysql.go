package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/mysql"
)

func mysqlOpener(ctx context.Context, b *bench) (opener, error) {
	if _, err := b.engines.mysql(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (outmill.Store, error) { return b.mysqlStore(ctx, "stores") }, nil
}

// besideMySQL measures claims by key, and a message in a transaction beside an INSERT of the same columns and indexes.
func besideMySQL(ctx context.Context, s *storing) error {
	few := max(1, s.b.n/50)
	err := s.b.compare(ctx,
		side{field: "mysql_claim_ack_by_key_per_s", title: fmt.Sprintf("MariaDB, claim and ack %d by key", s.b.batch), prepare: s.prepare(s.b.n),
			run: s.settleIn(outmill.OrderKey, s.b.n, s.b.batch)},
		side{field: "mysql_insert_per_s", title: "MariaDB, a transaction with an INSERT", n: few, prepare: s.prepareBare,
			run: s.inTransactions(few, s.insertBare)},
		side{field: "mysql_publish_per_s", title: "MariaDB, a transaction with a message", n: few, prepare: s.prepareBare,
			run: s.inTransactions(few, s.appendWithin)},
	)
	s.b.results.ratio("mysql_by_key_ratio", "MariaDB, by key / unordered", "mysql_claim_ack_by_key_per_s", "mysql_claim_ack_per_s")
	s.b.results.ratio("mysql_publish_cost", "MariaDB, an INSERT / a message", "mysql_insert_per_s", "mysql_publish_per_s")
	return err
}

// prepareBare makes a table like that of the records, for INSERTs without the store.
func (s *storing) prepareBare(ctx context.Context) error {
	if err := s.prepare(0)(ctx); err != nil {
		return err
	}
	_, err := s.store.(*mysql.Store).DB().ExecContext(ctx, "CREATE TABLE bare LIKE outmill_records")
	return err
}

// inTransactions writes each record in a transaction of its own.
func (s *storing) inTransactions(n int, write func(ctx context.Context, tx *sql.Tx, r *outmill.Record) error) (
	run func(ctx context.Context) (time.Duration, error)) {
	return func(ctx context.Context) (time.Duration, error) {
		list := records(storesTopic, 0, n, s.b.size, true)
		began := time.Now()
		for _, r := range list {
			tx, err := s.store.(*mysql.Store).DB().BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
			if err != nil {
				return 0, err
			}
			if err := write(ctx, tx, r); err != nil {
				_ = tx.Rollback()
				return 0, err
			}
			if err := tx.Commit(); err != nil {
				return 0, err
			}
		}
		return time.Since(began), nil
	}
}

func (s *storing) appendWithin(ctx context.Context, tx *sql.Tx, r *outmill.Record) error {
	return s.store.Append(s.store.(*mysql.Store).WithTx(ctx, tx), r)
}

const sqlInsertBare = `INSERT INTO bare (id, grp, topic, rec_key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, due_at,
	message_id, metadata, payload) VALUES (?, 'bench', ?, ?, '', ?, ?, 0, 0, ?, 0, ?, ?, NULL, ?)`

func (s *storing) insertBare(ctx context.Context, tx *sql.Tx, r *outmill.Record) error {
	id, now := outmill.NewWorkItemID(), time.Now().UnixMicro()
	_, err := tx.ExecContext(ctx, sqlInsertBare, id[:], r.Topic, r.Key, now, len(r.Payload), now, now, id.String(), r.Payload)
	return err
}
