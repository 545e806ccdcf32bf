package dashboard

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/tenants"
)

// set is the store of many, or nil.
func (d *Dashboard) set() *tenants.Set {
	set, _ := outmill.As[*tenants.Set](d.store)
	return set
}

func (d *Dashboard) isMany() bool { return d.set() != nil }

// tenants are the keys of the stores that are open.
func (d *Dashboard) tenants() []string {
	if set := d.set(); set != nil {
		return set.Keys()
	}
	return nil
}

// isLack reports whether the store lacks the role that a call needs.
func isLack(err error) bool {
	var lack *tenants.RoleError
	if !errors.As(err, &lack) {
		return false
	}
	// Where only some members lack it, the others have answered.
	var partly *storekit.PartialError
	if errors.As(err, &partly) {
		for _, one := range partly.Failed {
			if !errors.As(one, &lack) {
				return false
			}
		}
	}
	return true
}

// member is a line of the page of stores.
type member struct {
	Name, State, Problem, Since     string
	InFlight                        int
	Due, Delayed, Leased, Dead, Lag string
	Topics                          int
	HasDead, Late                   bool
}

type storesView struct {
	Many    bool
	Members []member
	More    int
	Filter  string
	// Discovery is why the discovery gave no answer.
	Discovery string
	Limit     int
	Fresh     freshness
}

func storesPage(c *call) error {
	filter := c.r.URL.Query().Get("q")
	return c.renderLive("stores", "Stores", c.stores(c.ctx, filter), "q", filter)
}

func (c *call) stores(ctx context.Context, filter string) storesView {
	n := c.counts.look(ctx)
	v := storesView{Many: c.isMany(), Filter: filter, Limit: n.limit, Fresh: c.freshness(n)}
	if !v.Many {
		v.Members = []member{c.counted(member{Name: c.store.Name()}, n.rows, n)}
		return v
	}
	status := c.set().Status()
	if status.Discovery.Err != nil {
		v.Discovery = c.errorText(status.Discovery.Err.Error())
	}
	for _, m := range status.Members {
		if !strings.Contains(m.Name, filter) {
			continue
		}
		if len(v.Members) == maxLines {
			v.More++
			continue
		}
		line := member{Name: m.Name, State: string(m.State), InFlight: m.InFlight}
		if m.Err != nil {
			line.Problem = c.errorText(m.Err.Error())
		}
		if !m.FailingSince.IsZero() {
			line.Since = ago(m.FailingSince, n.tried)
		}
		rows := slices.DeleteFunc(slices.Clone(n.rows), func(s outmill.TopicStats) bool { return s.Store != m.Name })
		v.Members = append(v.Members, c.counted(line, rows, n))
	}
	return v
}

func (c *call) counted(m member, rows []outmill.TopicStats, n counts) member {
	var o overview
	o.sum(rows, n.at, n.limit)
	m.Due, m.Delayed, m.Leased, m.Dead, m.Lag, m.HasDead, m.Late = o.Due, o.Delayed, o.Leased, o.Dead, o.Lag, o.HasDead, o.Late
	m.Topics = len(rows)
	return m
}

// errorText shows an error of a store where errors are shown.
func (c *call) errorText(text string) string {
	if !c.config.ShowErrors {
		return "The error is hidden here; the log has it."
	}
	return cut(text, 300)
}
