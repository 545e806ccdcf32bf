package roles

import (
	"context"

	"github.com/outmill/outmill"
)

// Members is the role of a store that is made of others (package tenants). Its records name theirs in
// Record.Store.
type Members interface {
	// InMember returns a context whose calls are for the store of that name.
	InMember(ctx context.Context, name string) context.Context

	// StatsOfBusy is Stats of [outmill.Inspector] without the stores that are known to be idle: see
	// [Idle]. An idle store has no record that is due.
	StatsOfBusy(ctx context.Context, limit int) ([]outmill.TopicStats, error)
}
