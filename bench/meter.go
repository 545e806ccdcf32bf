package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// meter measures the cost of a side for each thing that it does.
type meter struct {
	pool    *pgxpool.Pool
	traffic *traffic
}

// start returns a function that adds the round trips and the processor time of each of n
// things that were done since.
func (m *meter) start(ctx context.Context) (each func(r *results, name, title string, n int) error, err error) {
	first, remote := postmaster(ctx, m.pool)
	here := remote == nil
	used := func() (sum time.Duration, err error) {
		if !here {
			return 0, nil
		}
		server, err := serverTime(first)
		if err != nil {
			return 0, err
		}
		own, err := ownTime()
		return server + own, err
	}
	cpu, err := used()
	trips := m.traffic.roundTrips.Load()
	return func(r *results, name, title string, n int) error {
		all := m.traffic.roundTrips.Load() - trips
		now, err := used()
		r.add(name+"_round_trips", title+": round trips", float64(all)/float64(n))
		r.add(name+"_cpu_us", title+": processor time, µs", float64((now-cpu).Microseconds())/float64(n))
		return err
	}, err
}
