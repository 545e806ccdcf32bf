package driver

import "context"

// AppendWithin is a DB whose Within costs less where the function only inserts.
type AppendWithin interface {
	// AppendWithin is Within of an fn whose only write is one Insert, after which it does nothing that needs the database. It may run fn
	// again, as Within may, and behind it Within instead.
	AppendWithin(ctx context.Context, tx any, fn func(Tx) error) error
}
