package driver

import (
	"math/rand/v2"
	"sync"

	"github.com/outmill/outmill/engine/driver"
)

// mostApart is the most claims of other processes beside which a claim chooses rows of its own.
const mostApart = 16

// crowds are the lines from which claims of several processes choose without an order. The server does not say which rows another claim
// is about to lease. So a claim that has lost rows has the next ones of its process begin a random number of claims behind the first row.
type crowds struct {
	mu    sync.Mutex
	lines map[driver.Line]*crowd
}

// crowd is a line that others claim from. apart is how many claims seem to choose at the same time, and luck how many have lost nothing
// since that has changed.
type crowd struct{ apart, luck int }

// skip is how many ready rows a claim of this size leaves to others.
func (c *crowds) skip(line driver.Line, limit int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of := c.lines[line]; of != nil {
		return rand.IntN(of.apart) * limit
	}
	return 0
}

// note notes how many of the chosen rows a claim got.
func (c *crowds) note(line driver.Line, chosen, got int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.lines[line]
	switch {
	case got < chosen && of == nil:
		if c.lines == nil {
			c.lines = map[driver.Line]*crowd{}
		}
		c.lines[line] = &crowd{apart: 2}
	case got < chosen:
		of.apart, of.luck = min(2*of.apart, mostApart), 0
	case of == nil:
	case of.luck < of.apart:
		of.luck++
	default:
		if of.apart, of.luck = of.apart-1, 0; of.apart <= 1 {
			delete(c.lines, line)
		}
	}
}

// forget says that there were too few rows to leave some to others.
func (c *crowds) forget(line driver.Line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.lines, line)
}
