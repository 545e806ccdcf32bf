package driver

import "strconv"

// Swap is a change of one entry, unless somebody else has changed that since it was read, and what follows from it.
type Swap struct {
	// Entry is the one that is changed. Its Value is in two parts, between which the time of the change is written. Its Made is that
	// of the change if it is new, and stays otherwise.
	Entry  Entry
	Behind string
	// Was is how the Value of the stored entry begins. "" means that there is none.
	Was string
	// Gone deletes the entry.
	Gone bool
	// Put and Delete are those that follow. An At of AtSwap is the time of the change.
	Put, Delete []Entry
}

// AtSwap stands for the time of a Swap.
const AtSwap Time = -1

// Swapped is the result of a Swap.
type Swapped struct {
	// Found says that the entry was as Was says, so that the Swap was done.
	Found bool
	// Made is when the entry was made, and At the time of the change.
	Made, At Time
}

// Stamped returns the Swap with its time, for a driver that knows it before it writes.
func (s Swap) Stamped(now Time) Swap {
	s.Entry.Value += strconv.FormatInt(int64(now), 10) + s.Behind
	s.Put = append([]Entry(nil), s.Put...)
	for i := range s.Put {
		if s.Put[i].At == AtSwap {
			s.Put[i].At = now
		}
	}
	return s
}
