package sqlkit

import "time"

// CeilMicros returns the duration in microseconds, rounded up, so that no record is due,
// and no lease ends, too early.
func CeilMicros(d time.Duration) int64 {
	whole := d.Microseconds()
	if d > time.Duration(whole)*time.Microsecond {
		whole++
	}
	return whole
}
