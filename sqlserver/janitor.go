package sqlserver

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const (
	// serverNow has the precision of the columns. A value of another precision would be converted
	// for each row, and might prevent an index seek.
	serverNow = `CAST(SYSUTCDATETIME() AS DATETIME2(6))`

	// microsAgo is the time @micros microseconds ago.
	microsAgo = `DATEADD(MICROSECOND, -CAST(@micros % 1000000 AS INT), DATEADD(SECOND, -CAST(@micros / 1000000 % 86400 AS INT), DATEADD(DAY,
		-CAST(@micros / CAST(86400000000 AS BIGINT) AS INT), ` + serverNow + `)))`

	// sqlDeleteProcessed reads RetryCount, which is in no index: see Outbox_Claim.
	sqlDeleteProcessed = asMaintenance + `DELETE TOP (@limit) FROM [dbo].[Outbox] WITH (UPDLOCK, READPAST, ROWLOCK)
		WHERE ProcessedAt IS NOT NULL AND ProcessedAt <= ` + microsAgo + ` AND RetryCount >= 0;
SELECT @@ROWCOUNT`

	sqlDeleteDedup = asMaintenance + `DELETE TOP (@limit) FROM [dbo].[OutboxDedup] WITH (UPDLOCK, READPAST, ROWLOCK) WHERE ExpiresAt <= ` +
		serverNow + `;
SELECT @@ROWCOUNT`
)

// ReapExpired makes records pending whose lease has ended. See outmill.Queue.
func (s *Store) ReapExpired(ctx context.Context, limit int) (int, error) {
	reaped, err := s.tidy(ctx, "reap", "[dbo].[Outbox_Reap]", "Limit", limit)
	s.logger.Reaped(reaped)
	if reaped > 0 {
		s.notifier.Notify()
	}
	return reaped, err
}

// ExpireDue makes records dead whose expiry has passed and that have no lease. See
// outmill.Janitor.
func (s *Store) ExpireDue(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "expire", "[dbo].[Outbox_Expire]", "Limit", limit)
}

// DeleteProcessed deletes processed records older than Config.Retain. See
// outmill.Janitor.
func (s *Store) DeleteProcessed(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete processed", sqlDeleteProcessed, "limit", limit, named("micros", s.config.Retain.Microseconds()))
}

// DeleteDedupKeys deletes dedup keys whose window has ended. See
// outmill.Janitor.
func (s *Store) DeleteDedupKeys(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete dedup keys", sqlDeleteDedup, "limit", limit)
}

// tidy works on up to limit records, at most maxAtOnce in one transaction. It skips records that
// another transaction has locked.
func (s *Store) tidy(ctx context.Context, operation, template, name string, limit int, more ...any) (int, error) {
	if err := storekit.CheckLimit(limit); err != nil {
		return 0, s.explain(ctx, operation, err)
	}
	all := 0
	for all < limit {
		some := min(limit-all, maxAtOnce)
		var n int
		var counted []outmill.JoinID
		err := s.run(ctx, operation, call{
			template: template, args: append([]any{named(name, some)}, more...),
			reset: func() { counted = nil },
			sets:  []reader{numbers(&n), joinIDs(&counted)},
		})
		if err != nil {
			return all, err
		}
		s.hurry(ctx, counted)
		if all += n; n < some {
			break
		}
	}
	return all, nil
}

// Maintain has nothing to do. See outmill.Janitor.
func (*Store) Maintain(context.Context) (more bool, err error) { return false, nil }
