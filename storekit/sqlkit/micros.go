package sqlkit

import (
	"math"
	"time"
)

// Micros is as many microseconds, or as far as a Duration goes: 292 years.
func Micros(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	switch {
	case n > most:
		return math.MaxInt64
	case n < -most:
		return math.MinInt64
	}
	return time.Duration(n) * time.Microsecond
}
