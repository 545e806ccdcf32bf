package outmill

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Defaults of RetryPolicy.
const (
	DefaultMaxAttempts     = 10
	DefaultInitialInterval = 2 * time.Second
	DefaultMaxInterval     = 60 * time.Second
	DefaultMultiplier      = 2.0
)

// backoffSteps limits the number of waits that Delay computes for a record with unlimited
// retries. After so many waits a useful backoff has reached its maximum.
const backoffSteps = 1000

// RetryPolicy says how often and when a record is delivered again after a failed handling.
// The zero value is the default: 10 attempts, the n-th failure waits min(2^n s, 60 s), no
// jitter. It is built on cenkalti/backoff/v4 and is safe for concurrent use.
type RetryPolicy struct {
	// MaxAttempts is the number of handlings after which a record that still
	// fails goes dead. 0 is 10; negative is no limit.
	MaxAttempts int
	// InitialInterval is the wait after the first failure; 0 is 2 s.
	InitialInterval time.Duration
	// MaxInterval is the longest wait; 0 is 60 s.
	MaxInterval time.Duration
	// Multiplier is the growth from one wait to the next; 0 is 2.
	Multiplier float64
	// FullJitter draws each wait uniformly from (0, wait], so that records that failed
	// together are not retried together (AWS Architecture Blog, "Exponential Backoff And
	// Jitter").
	FullJitter bool
	// BackOff returns a sequence of waits, which replaces the settings above except
	// MaxAttempts and FullJitter. A wait of backoff.Stop (-1) makes the record dead; any other
	// negative wait counts as 0. The policy calls BackOff at each failure, from several
	// goroutines; it must return a new sequence each time. If it returns nil, the settings
	// above apply.
	BackOff func() BackOff
}

// BackOff is a sequence of waits. The BackOffs of cenkalti/backoff v4 and v5 are such
// sequences.
type BackOff interface {
	// NextBackOff returns the next wait. backoff.Stop (-1) ends the retries.
	NextBackOff() time.Duration
	// Reset begins the sequence again.
	Reset()
}

// Validate returns an error for every invalid setting, joined.
func (p RetryPolicy) Validate() error {
	var errs []error
	if p.InitialInterval < 0 {
		errs = append(errs, fmt.Errorf("%w: RetryPolicy.InitialInterval is %s: want 0 or more", ErrInvalidConfig, p.InitialInterval))
	}
	if p.MaxInterval < 0 {
		errs = append(errs, fmt.Errorf("%w: RetryPolicy.MaxInterval is %s: want 0 or more", ErrInvalidConfig, p.MaxInterval))
	}
	if p.Multiplier != 0 && !(p.Multiplier >= 1 && p.Multiplier <= math.MaxFloat64) {
		errs = append(errs, fmt.Errorf("%w: RetryPolicy.Multiplier is %g: want a number from 1", ErrInvalidConfig, p.Multiplier))
	}
	return errors.Join(errs...)
}

// Exhausted reports whether a record with this many failures gets no further attempt.
func (p RetryPolicy) Exhausted(failures int) bool {
	limit := p.Limit()
	return limit > 0 && failures >= limit
}

// Limit is the largest number of handlings, with the default applied; 0 is no limit.
func (p RetryPolicy) Limit() int { return max(0, cmp.Or(p.MaxAttempts, DefaultMaxAttempts)) }

// Delay returns the wait after the n-th failure, n from 1, or backoff.Stop.
func (p RetryPolicy) Delay(n int) time.Duration {
	b := p.backOff()
	var delay time.Duration
	for range min(max(n, 1), backoffSteps) {
		if delay = b.NextBackOff(); delay == backoff.Stop {
			return backoff.Stop
		}
	}
	if p.FullJitter && delay > 0 {
		delay = 1 + rand.N(delay)
	}
	return max(delay, 0)
}

func (p RetryPolicy) backOff() BackOff {
	if p.BackOff != nil {
		if b := p.BackOff(); !IsNil(b) {
			b.Reset()
			return b
		}
	}
	b := &backoff.ExponentialBackOff{
		InitialInterval: DefaultInitialInterval,
		MaxInterval:     DefaultMaxInterval,
		Multiplier:      DefaultMultiplier,
		Stop:            backoff.Stop,
		Clock:           backoff.SystemClock,
	}
	if p.MaxInterval > 0 {
		b.MaxInterval = p.MaxInterval
	}
	if p.InitialInterval > 0 {
		b.InitialInterval = p.InitialInterval
	}
	b.InitialInterval = min(b.InitialInterval, b.MaxInterval)
	if p.Multiplier > 0 {
		b.Multiplier = p.Multiplier
	}
	b.Reset()
	return b
}
