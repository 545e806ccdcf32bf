package worker

import "time"

const (
	// ahead is the longest time that a record claimed ahead should wait for a handler,
	// estimated from the handlers' pace. It is short, because other processes cannot handle a
	// record that this process has leased.
	ahead = 100 * time.Millisecond
	// forgotten is the time without a handling after which the pace of a feed no longer
	// counts.
	forgotten = time.Second
	// paceWeight is the inverse of the weight of the newest sample.
	paceWeight = 8
)

// pace measures the handlers of a feed: the duration of a handling, and the time until a
// reader accepts the next message.
type pace struct {
	handling, offering average
	// startedAt and endedAt are the times of the last start and the last end of a handling.
	startedAt, endedAt time.Time
}

// average is an exponentially weighted moving average; known is false before the first
// sample.
type average struct {
	known bool
	value time.Duration
}

func (a *average) add(sample time.Duration) {
	if !a.known {
		a.known, a.value = true, sample
		return
	}
	a.value += (sample - a.value) / paceWeight
}

// started records that a handling has begun. Its record was on offer since offered.
func (p *pace) started(now, offered time.Time) {
	if offered.Before(p.startedAt) {
		offered = p.startedAt
	}
	p.offering.add(now.Sub(offered))
	p.startedAt = now
}

func (p *pace) ended(now, started time.Time) {
	p.handling.add(now.Sub(started))
	p.endedAt = now
}

// prefetch returns the number of records to claim in addition to one for each free handler:
// as many as the handlers start within ahead. Before the first handling has ended the pace
// is unknown, so it returns 0.
func (p *pace) prefetch(now time.Time, hands, running, most int) int {
	if !p.handling.known || hands < 1 || running == 0 && now.Sub(p.endedAt) > forgotten {
		return 0
	}
	handling := p.handling.value
	if running >= hands {
		// The newest of the running handlings has already taken this long.
		handling = max(handling, now.Sub(p.startedAt))
	}
	each := max(p.offering.value, handling/time.Duration(hands))
	if each <= 0 {
		return most
	}
	return int(min(ahead/each, time.Duration(most)))
}
