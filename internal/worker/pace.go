package worker

import "time"

const (
	// ahead is how long the records that a worker claims before their use may wait
	// for a handler, as far as the handlers' pace tells. What one process holds,
	// another one cannot handle.
	ahead = 100 * time.Millisecond
	// forgotten is how long a feed may be empty before its pace counts no more.
	forgotten = time.Second
	// paceWeight is the weight of the newest sample, as one over so many.
	paceWeight = 8
)

// pace follows how fast the handlers of a feed are: how long a handling takes,
// and how long a reader takes until it accepts the next message.
type pace struct {
	handling, offering average
	// startedAt and endedAt are of the last handling.
	startedAt, endedAt time.Time
}

// average is an exponentially weighted moving average; negative before the first
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

// started notes that a handling has begun, of a record that was on offer since
// then.
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

// prefetch is how many records to claim in addition to those that handlers are free for:
// what the handlers start within the time that a record may wait. Nothing is known
// before the first handling has ended, so nothing is claimed ahead then.
func (p *pace) prefetch(now time.Time, hands, running, most int) int {
	if !p.handling.known || hands < 1 || running == 0 && now.Sub(p.endedAt) > forgotten {
		return 0
	}
	handling := p.handling.value
	if running >= hands {
		// The youngest of the handlings under way has taken that long already.
		handling = max(handling, now.Sub(p.startedAt))
	}
	each := max(p.offering.value, handling/time.Duration(hands))
	if each <= 0 {
		return most
	}
	return int(min(ahead/each, time.Duration(most)))
}
