package main

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"text/tabwriter"
)

// results are the numbers of a scenario, by field.
type results struct {
	list   []*result
	byName map[string]*result
	// facts has the versions and settings that belong to the numbers.
	facts [][2]string
}

// result is one field: the median of its rounds.
type result struct {
	field, title string
	rounds       []float64
}

func (r *results) add(field, title string, value float64) {
	if r.byName == nil {
		r.byName = map[string]*result{}
	}
	found := r.byName[field]
	if found == nil {
		found = &result{field: field, title: title}
		r.byName[field] = found
		r.list = append(r.list, found)
	}
	found.rounds = append(found.rounds, value)
}

// fact notes a version or a setting.
func (r *results) fact(name, value string) { r.facts = append(r.facts, [2]string{name, value}) }

// median returns the median of a field, or 0 if the field does not exist.
func (r *results) median(field string) float64 {
	found := r.byName[field]
	if found == nil {
		return 0
	}
	sorted := slices.Sorted(slices.Values(found.rounds))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}

// ratio adds the quotient of two medians.
func (r *results) ratio(field, title, of, to string) {
	r.add(field, title, r.median(of)/r.median(to))
}

// pairs adds the quotient of two fields for each round. Where other programs slow down some rounds,
// the median of quotients shows more than the quotient of medians.
func (r *results) pairs(field, title, of, to string) {
	dividends, divisors := r.byName[of], r.byName[to]
	if dividends == nil || divisors == nil {
		return
	}
	for i := range min(len(dividends.rounds), len(divisors.rounds)) {
		r.add(field, title, dividends.rounds[i]/divisors.rounds[i])
	}
}

// report prints a table for people, and the object if -json is set.
func (b *bench) report() error {
	fmt.Fprintln(b.out)
	table := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', 0)
	for _, fact := range b.results.facts {
		fmt.Fprintf(table, "%s\t%s\n", fact[0], fact[1])
	}
	fmt.Fprintln(table)
	fmt.Fprintf(table, "%s\tmedian\tslowest\tfastest\tfield\n", b.scenario)
	for _, r := range b.results.list {
		low, high := slices.Min(r.rounds), slices.Max(r.rounds)
		if len(r.rounds) == 1 {
			fmt.Fprintf(table, "%s\t%s\t\t\t%s\n", r.title, number(low), r.field)
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", r.title, number(b.results.median(r.field)), number(low), number(high), r.field)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if !b.json {
		return nil
	}
	return b.reportJSON()
}

func (b *bench) reportJSON() error {
	object := map[string]any{"scenario": b.scenario, "n": b.n, "rounds": b.rounds, "short": b.short}
	for _, fact := range b.results.facts {
		object[fact[0]] = fact[1]
	}
	for _, r := range b.results.list {
		median := b.results.median(r.field)
		if math.IsInf(median, 0) || math.IsNaN(median) {
			return fmt.Errorf("%s is not a number: what it is measured by was 0", r.field)
		}
		object[r.field] = median
	}
	line, err := json.Marshal(object)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(b.out, "%s\n", line)
	return err
}

// number formats a value with its significant digits.
func number(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	if x < 0.1 {
		return fmt.Sprintf("%.4f", x)
	}
	return fmt.Sprintf("%.2f", x)
}
