package driver

import (
	"encoding/binary"
	"sort"
	"strconv"

	"github.com/outmill/outmill"
)

// The row of a message has one id, and a group's copy of it the one that the receipt of Append names: the first group by name has the
// row's own, and the others have those of outmill.CopyID. Groups come and go, and a chain passes on, but the ids stay: they follow
// from the registrations that the append knew, which are those of the last event before it.

// logMasked is what ids have of rows whose appends knew the event, and no later one of its list.
type logMasked struct {
	event int64
	// mask is what changes of the last 8 bytes of the row's id.
	mask int64
}

// logMasks are the masks of a chain, by event. A row before the first event has the mask of the chain's number.
type logMasks []logMasked

// of is the mask of a row.
func (m logMasks) of(chain, event int64) int64 {
	if n := sort.Search(len(m), func(i int) bool { return m[i].event > event }); n > 0 {
		return m[n-1].mask
	}
	return logUnnamed(chain)
}

// id is the id that a row has for the chain. A row that two chains read has two ids, so each can be a record.
func (m logMasks) id(chain int64, row outmill.WorkItemID, event int64) outmill.WorkItemID {
	mask := uint64(m.of(chain, event))
	for i := len(row) - 1; mask != 0; i-- {
		row[i] ^= byte(mask)
		mask >>= 8
	}
	return row
}

// events and values are what log_copy_id takes.
func (m logMasks) events() string {
	return numbersOf(m, func(k *logMasked) int64 { return k.event })
}

func (m logMasks) values(chain int64) string {
	all := append(logMasks{{mask: logUnnamed(chain)}}, m...)
	return numbersOf(all, func(k *logMasked) int64 { return k.mask })
}

// logUnnamed is the mask of a chain before the first event of its topic, when chain 0 waits.
func logUnnamed(chain int64) int64 {
	if chain == 0 {
		return 0
	}
	return logNumbered(chain)
}

// logNumbered is the mask of a chain that no group of the append had.
func logNumbered(chain int64) int64 {
	return logMask("\x00" + strconv.FormatInt(chain, 10)) // which no group can have as its name
}

// logMask is what outmill.CopyID changes of the last 8 bytes of an id. "" is the row's own id.
func logMask(name string) int64 {
	if name == "" {
		return 0
	}
	id := outmill.CopyID(outmill.WorkItemID{}, name)
	return int64(binary.BigEndian.Uint64(id[8:]))
}

// names are those of the chains that a row appended now is for. While a chain waits, it has the row's own id: nobody knows who takes it.
func (c *logChains) names() map[int64]string {
	names := make(map[int64]string, len(c.readings)+1)
	if c.waiting != noChain {
		for group := range c.readings {
			names[c.first[group]] = group
		}
		names[c.waiting] = ""
		return names
	}
	first, found := "", false
	for group, chain := range c.of {
		names[chain] = group
		if !found || group < first {
			first, found = group, true
		}
	}
	if found {
		names[c.of[first]] = ""
	}
	return names
}

// rename has rows from the event on have the ids of the groups that read the topic now. A chain that nobody has gets the name of its
// number.
func (c *logChains) rename(event int64) {
	names := c.names()
	for chain := range c.named {
		if _, named := names[chain]; !named {
			c.masks[chain] = append(c.masks[chain], logMasked{event, logNumbered(chain)})
		}
	}
	for chain, name := range names {
		if was, named := c.named[chain]; !named || was != name {
			c.masks[chain] = append(c.masks[chain], logMasked{event, logMask(name)})
		}
	}
	c.named = names
}
