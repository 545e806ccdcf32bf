package driver

import "slices"

// Statement is a statement as SQLite gets it.
type Statement struct{ Name, Text string }

// Texts returns all statements, those of claims, settlements and appends first.
func (d *Driver) Texts() []Statement {
	var all []Statement
	for _, s := range slices.Concat(hot, rest) {
		all = append(all, Statement{s.name, d.names.in(s.text)})
	}
	return all
}

// Waiting is how many write transactions wait for their turn.
func (d *Driver) Waiting() int {
	return d.writer.Waiting()
}
