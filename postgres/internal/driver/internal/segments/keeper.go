package segments

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Config says when the upkeep does what. Zero values are the defaults.
type Config struct {
	// Full is the size at which appends write to another segment, if one is empty. A segment smaller than Small is left as it is, and one
	// between is left after Age.
	Full, Small int64
	Age         time.Duration
	// Large is the size of the current segment from which on Log.Grows is called while both others are kept. It is called again after
	// TellAgain.
	Large     int64
	TellAgain time.Duration
	// MoveAfter is how long after its last append a segment is emptied by moves to the records.
	MoveAfter time.Duration
	// Every is the least time between two turns of all processes, and Turn how long one has the turn.
	Every, Turn time.Duration
	// Tidy is how long after the begin of a round over all chains the next one begins.
	Tidy time.Duration
	// Lines is how many lines a step looks at.
	Lines int
	// DumpWithin is the most time that a dump may take from its snapshot to its last lock, without the time that it waits for locks.
	DumpWithin time.Duration
}

func (c Config) withDefaults() Config {
	def := func(value *int64, is int64) {
		if *value == 0 {
			*value = is
		}
	}
	def(&c.Full, 64<<20)
	def(&c.Small, 4<<20)
	def(&c.Large, 512<<20)
	def((*int64)(&c.TellAgain), int64(10*time.Minute))
	def((*int64)(&c.Age), int64(30*time.Second))
	def((*int64)(&c.MoveAfter), int64(10*time.Minute))
	def((*int64)(&c.Every), int64(2*time.Second))
	def((*int64)(&c.Turn), int64(30*time.Second))
	def((*int64)(&c.Tidy), int64(time.Minute))
	def((*int64)(&c.DumpWithin), int64(time.Minute))
	if c.Lines == 0 {
		c.Lines = 1000
	}
	return c
}

// Keeper does the upkeep of a log. It is safe for concurrent use; one process of all has the turn.
type Keeper struct {
	log    Log
	config Config

	mu sync.Mutex
	// looks are where the searches of the segments go on, and refusals their pauses after a lock was refused.
	looks    [Count]look
	refusals [Count]refusals
	round    round
	// told is when somebody was told that the log grows.
	told time.Time
}

// New returns a Keeper.
func New(log Log, config Config) *Keeper {
	return &Keeper{log: log, config: config.withDefaults()}
}

// Small is Config.Small.
func (k *Keeper) Small() int64 { return k.config.Small }

// Maintain does some of the upkeep if this process has the turn, and reports whether there is more to do at once.
func (k *Keeper) Maintain(ctx context.Context) (more bool, err error) {
	turn := rand.Int64()
	taken, err := k.log.Change(ctx, "upkeep_turn", turn, k.config.Every.Microseconds(), k.config.Turn.Microseconds())
	if err != nil || taken == 0 {
		return false, err
	}
	working, cancel := context.WithTimeout(ctx, k.config.Turn*2/3)
	defer cancel()
	for more = true; more && err == nil && working.Err() == nil; {
		more, err = k.Step(working)
	}
	if _, ended := k.log.Change(ctx, "upkeep_end", turn); err == nil {
		err = ended
	}
	return more && err == nil, err
}

// Step does one bounded part of each kind of work, and reports whether there is more.
func (k *Keeper) Step(ctx context.Context) (more bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var current, free int
	var age int64
	var sizes []int64
	if err := k.log.One(ctx, "segments_state", &current, &age, &sizes); err != nil {
		return false, err
	}
	free = -1
	for i := range Count {
		switch {
		case i == current:
		case sizes[i] == 0:
			free = i
		default:
			found, err := k.empty(ctx, i, age > k.config.MoveAfter.Microseconds())
			if err != nil {
				return false, err
			}
			more = more || found.more
			if found.truncated {
				free = i
			}
		}
	}
	tidies, err := k.tidy(ctx)
	if err != nil {
		return false, err
	}
	more = more || tidies
	size := sizes[current]
	if free < 0 && size >= k.config.Large && time.Since(k.told) >= k.config.TellAgain {
		k.told = time.Now()
		k.log.Grows(size)
	}
	if free < 0 || size < k.config.Small || size < k.config.Full && age < k.config.Age.Microseconds() {
		return more, nil
	}
	_, err = k.log.Change(ctx, "segments_rotate", current, free)
	return true, err
}

// step is a transaction of the upkeep, about a segment.
type step struct {
	k       *Keeper
	tx      pgx.Tx
	segment int
}

// text is that of a statement; one about a segment has its number.
func (t step) text(name string) string { return t.k.log.Text(name) }

func (t step) each(name string) string {
	return t.k.log.Text(Each + strconv.Itoa(t.segment) + "_" + name)
}

// in runs fn in a transaction of its own.
func (k *Keeper) in(ctx context.Context, fn func(t step) error) error {
	tx, err := k.log.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if err := fn(step{k: k, tx: tx}); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// value returns the value of a statement about the segment.
func value[T any](ctx context.Context, t step, name string, args ...any) (v T, err error) {
	err = t.tx.QueryRow(ctx, t.each(name), args...).Scan(&v)
	return v, err
}
