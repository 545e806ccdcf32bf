package storetest

import "github.com/stretchr/testify/require"

// audit counts the outcomes of the records. groups has the groups in the order of their
// registrations.
func (w *stress) audit(groups []readers) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, s := range w.kept {
		if name[0] != safe {
			continue
		}
		reached := 0
		for i, g := range groups {
			of := w.of(g)
			times := of.times[name]
			if times > 0 || of.late[name] {
				reached++
			}
			if !of.late[name] && (times > 1 || times == 0 && s.reaches(i)) {
				w.note("%s: %s was handled %d times", g.name, name, times)
			}
		}
		if reached == 0 {
			w.note("%s reached no group", name)
		}
	}
	for _, g := range append(groups, passing) {
		for name := range w.of(g).times {
			if _, ok := w.kept[name]; !ok {
				w.note("%s: %s was handled and never committed", g.name, name)
			}
		}
	}
	require.Empty(w.e.T, w.wrong)
}

// reaches reports whether the contract guarantees that the record reaches the group. A record
// reaches the first group unless its transaction was open during that group's registration. It
// reaches the other groups if its append began after all of them had registered.
func (s span) reaches(i int) bool {
	if i > 0 {
		return s.began == allRegistered
	}
	return s.began >= firstRegistered || s.ended == unregistered
}
