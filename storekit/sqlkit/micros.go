package sqlkit

import (
	"math"
	"time"
)

// Micros returns n microseconds, limited to the range of a Duration: 292 years.
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

// CeilMicros returns the duration in microseconds, rounded up, so that no record is due,
// and no lease ends, too early.
func CeilMicros(d time.Duration) int64 {
	whole := d.Microseconds()
	if d > time.Duration(whole)*time.Microsecond {
		whole++
	}
	return whole
}
