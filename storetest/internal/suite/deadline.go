package suite

import (
	"context"
	"errors"
	"os"
)

// EndedByDeadline reports whether a deadline of the caller ended the call. A driver may end a call before the context
// does, if the answer would come too late, and a connection that it dials then has the error of the operating
// system in place of the context's.
func EndedByDeadline(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}
