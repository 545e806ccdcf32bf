package tenants

import "time"

// ChooseListeners is what the set does every Config.MaxIdle.
func (s *Set) ChooseListeners() { s.chooseListeners(time.Now()) }

// StirsOf counts for each member what has ended its rest, or would have.
func StirsOf(s *Set) map[string]uint64 {
	stirs := map[string]uint64{}
	for _, m := range s.snapshot() {
		stirs[m.name()] = m.stirred()
	}
	return stirs
}
