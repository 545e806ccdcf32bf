package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlserver"
)

func sqlserverOpener(ctx context.Context, b *bench) (opener, error) {
	db, err := b.sqlserverDatabase(ctx, "stores")
	if err != nil {
		return nil, err
	}
	number := 0
	return func(ctx context.Context) (outmill.Store, error) {
		// Each store has its own tables in one database.
		number++
		store, err := sqlserver.New(db, sqlserver.Config{Table: fmt.Sprintf("Outbox%d", number)}, nil)
		if err != nil {
			return nil, err
		}
		return store, store.Ensure(ctx)
	}, nil
}

// besideSQLServer measures a claim that is written by hand.
func besideSQLServer(ctx context.Context, s *storing) error {
	db, err := s.b.sqlserverDatabase(ctx, "beside")
	if err != nil {
		return err
	}
	p, few := &plainSQLServer{b: s.b, db: db}, max(1, s.b.n/50)
	err = s.b.compare(ctx, side{
		field: "sqlserver_update_top_1_per_s", title: "UPDATE TOP (1) and DELETE", n: few, prepare: p.fill(s.b.n), run: times(few, p.takeOne),
	})
	s.b.results.ratio("sqlserver_claim_ratio", "SQL Server, claim and ack / UPDATE TOP (1)", "sqlserver_claim_ack_per_s",
		"sqlserver_update_top_1_per_s")
	return err
}

// plainSQLServer is an outbox as people often write it by hand: a status, an index on it, and one
// row at a time.
type plainSQLServer struct {
	b  *bench
	db *sql.DB
}

const (
	plainTable = `IF OBJECT_ID(N'dbo.Things', N'U') IS NOT NULL DROP TABLE dbo.Things;
CREATE TABLE dbo.Things (Id BIGINT IDENTITY(1, 1) PRIMARY KEY, Status TINYINT NOT NULL, LockedUntil DATETIME2(6) NULL,
Topic NVARCHAR(255) NOT NULL, Payload VARBINARY(MAX) NOT NULL);
CREATE INDEX IX_Things_Status ON dbo.Things (Status, Id)`

	// plainFill inserts copies of one row.
	plainFill = `DECLARE @i INT = 0;
WHILE @i < @n
BEGIN
    INSERT dbo.Things (Status, Topic, Payload) VALUES (0, N'orders', @payload);
    SET @i = @i + 1;
END`

	plainTake = `SET NOCOUNT ON;
DECLARE @taken TABLE (Id BIGINT);
UPDATE t SET Status = 1, LockedUntil = DATEADD(SECOND, 60, SYSUTCDATETIME()) OUTPUT inserted.Id INTO @taken (Id) FROM dbo.Things AS t
WHERE t.Id = (SELECT TOP (1) Id FROM dbo.Things WITH (UPDLOCK, READPAST, ROWLOCK) WHERE Status = 0 ORDER BY Id);
SELECT Id FROM @taken`

	plainDone = `DELETE FROM dbo.Things WHERE Id = @id AND Status = 1`
)

// fill inserts this number of rows, and one more for the call that is not measured.
func (p *plainSQLServer) fill(n int) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if _, err := p.db.ExecContext(ctx, plainTable); err != nil {
			return err
		}
		tx, err := p.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(ctx, plainFill, sql.Named("n", n+1), sql.Named("payload", make([]byte, p.b.size))); err != nil {
			return err
		}
		return tx.Commit()
	}
}

// takeOne leases the first waiting row, and deletes it.
func (p *plainSQLServer) takeOne(ctx context.Context) error {
	var id int64
	if err := p.db.QueryRowContext(ctx, plainTake).Scan(&id); err != nil {
		return err
	}
	done, err := p.db.ExecContext(ctx, plainDone, sql.Named("id", id))
	if err != nil {
		return err
	}
	n, err := done.RowsAffected()
	if err == nil && n != 1 {
		return errors.New("what was leased is gone")
	}
	return err
}
