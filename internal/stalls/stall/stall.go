// Package stall pauses goroutines at chosen places, as a busy machine does. Only code that the command stalls has changed calls it.
package stall

import (
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// SeedVariable is the environment variable with the seed that chooses the places: without it, or with 0, nothing is paused.
// ShareVariable is the one with the share of places, in thousandths.
const (
	SeedVariable  = "OUTMILL_STALLS_SEED"
	ShareVariable = "OUTMILL_STALLS_SHARE"
)

const (
	// longest is the longest pause: a goroutine that has lost its processor on a busy machine waits about as long.
	longest = 100 * time.Millisecond
	// One pass in so many is a pause, and a place has at most so many pauses: loops go on.
	passes = 3
	pauses = 12
)

// places are those that a seed chooses.
type places struct {
	seed, share uint64
	// left has a counter for each chosen place.
	left sync.Map
}

var chosen = newPlaces(os.Getenv)

func newPlaces(env func(string) string) *places {
	number := func(name string) uint64 {
		n, _ := strconv.ParseUint(env(name), 10, 64)
		return n
	}
	return &places{seed: number(SeedVariable), share: number(ShareVariable)}
}

// At is in front of a statement. It pauses the goroutine now and then if the place is a chosen one.
func At(place uint32) {
	if chosen.has(place) && chosen.pauses(place) {
		pause()
	}
}

func (p *places) has(place uint32) bool {
	if p.seed == 0 {
		return false
	}
	mixed := (uint64(place) + p.seed<<32) * 0x9e3779b97f4a7c15
	mixed ^= mixed >> 29
	mixed *= 0xbf58476d1ce4e5b9
	return mixed>>33%1000 < p.share
}

func (p *places) pauses(place uint32) bool {
	if rand.IntN(passes) != 0 {
		return false
	}
	left, _ := p.left.LoadOrStore(place, new(atomic.Int32))
	return left.(*atomic.Int32).Add(1) <= pauses
}

func pause() {
	// In a bubble of package synctest, whose clock begins with 2000, a pause would change what a test measures, and stop the clock for
	// ever where a mutex is held.
	if time.Now().Year() < 2020 {
		runtime.Gosched()
		return
	}
	time.Sleep(rand.N(longest) + time.Millisecond)
}
