package driver

import (
	"fmt"
	"strings"
)

// IsTime reports whether a row may have the time.
func IsTime(t Time) bool { return t >= -Never && t <= Never }

// Refuse makes the numbers zero that no row has, and names them in Broken: somebody has changed them by hand.
func (r *Row) Refuse() {
	if r.Stage >= Ready && r.Stage <= Dead && r.Size|r.Attempts|r.Claims|r.Expiries >= 0 && IsTime(r.Created) && IsTime(r.Wake) &&
		IsTime(r.Next) && IsTime(r.Expires) && IsTime(r.Processed) {
		return
	}
	refuse := func(column, want string, have int64) {
		r.Broken = strings.TrimPrefix(fmt.Sprintf("%s; column %s: want %s, have %d", r.Broken, column, want, have), "; ")
	}
	for i, n := range [...]*int{&r.Size, &r.Attempts, &r.Claims, &r.Expiries} {
		if *n < 0 {
			refuse([...]string{"size", "attempts", "claims", "expiries"}[i], "a number from 0 on", int64(*n))
			*n = 0
		}
	}
	if r.Stage < Ready || r.Stage > Dead {
		refuse("stage", "a stage", int64(r.Stage))
		r.Stage = 0
	}
	for i, t := range [...]*Time{&r.Created, &r.Wake, &r.Next, &r.Expires, &r.Processed} {
		if !IsTime(*t) {
			refuse([...]string{"created_at", "wake_at", "next_at", "expires_at", "processed_at"}[i], "a time", int64(*t))
			*t = 0
		}
	}
}
