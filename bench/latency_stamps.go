package main

import (
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// stamps has the times at which each message was committed and first acked, in nanoseconds since
// began; 0 means not yet.
type stamps struct {
	began            time.Time
	committed, acked []atomic.Int64
}

func newStamps(n int) *stamps {
	return &stamps{began: time.Now().Add(-time.Nanosecond), committed: make([]atomic.Int64, n), acked: make([]atomic.Int64, n)}
}

func (s *stamps) commit(i int) { s.committed[i].Store(int64(time.Since(s.began))) }

func (s *stamps) note(acked []string, at time.Time) {
	for _, id := range acked {
		if i, ok := numberOf(id); ok && i < len(s.acked) {
			s.acked[i].CompareAndSwap(0, int64(at.Sub(s.began)))
		}
	}
}

// numberOf is the reverse of messageID.
func numberOf(id string) (int, bool) {
	i, err := strconv.Atoi(id[strings.LastIndexByte(id, '-')+1:])
	return i, err == nil && i >= 0
}

// waiting counts the messages from the given one on that are not acked.
func (s *stamps) waiting(from int) int {
	n := 0
	for i := from; i < len(s.acked); i++ {
		if s.acked[i].Load() == 0 {
			n++
		}
	}
	return n
}

// latencies returns sorted latencies. A message that is not acked counts as acked now, so that no
// side looks fast because it left messages behind. If an ack arrives before the answer to the
// commit, its latency is 0.
func (s *stamps) latencies(from int) []time.Duration {
	return s.latenciesOf(func(i int) bool { return i >= from })
}

// during returns the latencies of messages that were committed between two times.
func (s *stamps) during(from, to time.Time) []time.Duration {
	first, last := int64(from.Sub(s.began)), int64(to.Sub(s.began))
	return s.latenciesOf(func(i int) bool {
		at := s.committed[i].Load()
		return first <= at && at <= last
	})
}

func (s *stamps) latenciesOf(chosen func(i int) bool) []time.Duration {
	now := int64(time.Since(s.began))
	list := make([]time.Duration, 0, len(s.acked))
	for i := range s.acked {
		if !chosen(i) {
			continue
		}
		acked := s.acked[i].Load()
		if acked == 0 {
			acked = now
		}
		list = append(list, time.Duration(max(acked-s.committed[i].Load(), 0)))
	}
	slices.Sort(list)
	return list
}

// quantile returns the quantile of a sorted list.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
