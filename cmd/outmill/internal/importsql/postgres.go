package importsql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// postgresTable is a source in PostgreSQL.
type postgresTable struct {
	table
	// queue says that it is of PostgreSQLQueueSchema, where each row is marked as read.
	queue bool
}

func findPostgres(ctx context.Context, db *sql.DB, o Options) (source, error) {
	named := func(prefix string) string { return pgx.Identifier{prefix + o.Topic}.Sanitize() }
	t := postgresTable{table: table{Options: o, messages: named("watermill_"), offsets: named("watermill_offsets_")}}
	columns, err := texts(ctx, db,
		`SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped`, t.messages)
	if err != nil {
		return t, err
	}
	switch {
	case len(columns) == 0:
		return t, t.missing()
	case slices.Contains(columns, "transaction_id"):
		var exists bool
		if err := db.QueryRowContext(ctx, `SELECT to_regclass($1) IS NOT NULL`, t.offsets).Scan(&exists); err != nil {
			return t, err
		}
		return t, t.checkGroup(ctx, db, exists)
	case slices.Contains(columns, "acked"):
		t.queue = true
		return t, nil
	}
	return t, fmt.Errorf("the table %s is none of watermill-sql's PostgreSQL schemas: it has neither transaction_id nor acked", t.messages)
}

func (postgresTable) level() sql.IsolationLevel { return sql.LevelDefault }

func (t postgresTable) waiting(ctx context.Context, db *sql.DB) (n int, err error) {
	if t.queue {
		err = db.QueryRowContext(ctx, `SELECT count(*) FROM `+t.messages+` WHERE NOT acked`).Scan(&n)
		return n, err
	}
	err = db.QueryRowContext(ctx, `SELECT count(*) FROM `+t.messages+` WHERE (transaction_id, "offset") > (
		coalesce((SELECT last_processed_transaction_id FROM `+t.offsets+` WHERE consumer_group = $1), '0'),
		coalesce((SELECT offset_acked FROM `+t.offsets+` WHERE consumer_group = $1), 0))`, t.Group).Scan(&n)
	return n, err
}

func (t postgresTable) prepare(ctx context.Context, db *sql.DB) error {
	if t.queue {
		return nil
	}
	_, err := db.ExecContext(ctx, `INSERT INTO `+t.offsets+` (consumer_group, offset_acked, last_processed_transaction_id)
		VALUES ($1, 0, '0') ON CONFLICT DO NOTHING`, t.Group)
	return err
}

func (t postgresTable) next(ctx context.Context, tx *sql.Tx) ([]row, error) {
	if t.queue {
		return scan(tx.QueryContext(ctx, `SELECT "offset", '', uuid, payload, metadata FROM `+t.messages+
			` WHERE NOT acked ORDER BY "offset" LIMIT $1 FOR UPDATE`, t.Batch))
	}
	var acked int64
	var transaction string
	if err := tx.QueryRowContext(ctx, `SELECT coalesce(offset_acked, 0), last_processed_transaction_id::text FROM `+t.offsets+
		` WHERE consumer_group = $1 FOR UPDATE`, t.Group).Scan(&acked, &transaction); err != nil {
		return nil, err
	}
	// What an older open transaction may still precede waits, as with watermill-sql.
	return scan(tx.QueryContext(ctx, `SELECT "offset", transaction_id::text, uuid, payload, metadata FROM `+t.messages+`
		WHERE (transaction_id, "offset") > ($1::text::xid8, $2) AND transaction_id < pg_snapshot_xmin(pg_current_snapshot())
		ORDER BY transaction_id, "offset" LIMIT $3`, transaction, acked, t.Batch))
}

func (t postgresTable) done(ctx context.Context, tx *sql.Tx, rows []row) error {
	if t.queue {
		offsets := make([]int64, len(rows))
		for i, r := range rows {
			offsets[i] = r.offset
		}
		_, err := tx.ExecContext(ctx, `UPDATE `+t.messages+` SET acked = true WHERE "offset" = ANY($1)`, offsets)
		return err
	}
	last := rows[len(rows)-1]
	_, err := tx.ExecContext(ctx, `UPDATE `+t.offsets+` SET offset_acked = $1, last_processed_transaction_id = $2::text::xid8
		WHERE consumer_group = $3`, last.offset, last.transaction, t.Group)
	return err
}
