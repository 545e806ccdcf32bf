package engine

import (
	"context"
	"time"
)

// halfTime returns the time at which half of the time that ctx leaves a claim has passed. A
// claim that has worked in many transactions and has no record to return stops then: its
// work stays done, while at the end of ctx its caller would treat it as failed. halfTime is
// zero if ctx has no deadline.
func halfTime(ctx context.Context) time.Time {
	end, bounded := ctx.Deadline()
	if !bounded {
		return time.Time{}
	}
	return time.Now().Add(time.Until(end) / 2)
}
