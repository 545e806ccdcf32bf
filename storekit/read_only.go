package storekit

import (
	"context"
	"errors"
)

// ErrReadOnly says that the server accepts no writes on this connection. It is so on a standby, and
// after a failover that leaves connections to the former primary open. A store closes such a
// connection of its own, so that its pool opens another. A connection that the caller's transaction
// has must be closed by the caller.
var ErrReadOnly = errors.New("outmill: the server accepts no writes on this connection")

// WriteChecker is the role of a store that notices that its server accepts no writes any more.
type WriteChecker interface {
	// CheckWrites returns ErrReadOnly if the server has refused a write of the store and still
	// accepts none. It asks the server only after a refused write. Errors: ErrReadOnly, the
	// driver's.
	CheckWrites(ctx context.Context) error
}
