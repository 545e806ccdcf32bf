package dashboard

import (
	"context"
	"strconv"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// changeTime is how long one request changes records; the page then offers to go on.
const changeTime = 3 * time.Second

// change is a change of one record or of those that a search finds.
type change struct {
	action        string
	title, button string
	// one and many are the questions.
	one, many string
	danger    bool
	past      string
	byID      func(ctx context.Context, ids ...outmill.WorkItemID) (int, error)
	where     func(operator roles.Repairs, ctx context.Context, query outmill.ListQuery) (roles.Page, error)
	// check refuses searches that the change is not for.
	check func(query outmill.ListQuery) error
}

func (c *call) requeueing() change {
	return change{
		action: "requeue", title: "Requeue", button: "Requeue", past: "requeued",
		one: "The record becomes due at once, with all its attempts. Records that were parked with its key come along.",
		many: "All dead records that match become due at once, with all their attempts. The records that were parked with their keys " +
			"come along.",
		byID: c.store.Requeue, where: roles.Repairs.RequeueWhere,
		check: func(query outmill.ListQuery) error {
			if query.Status != outmill.StatusDead {
				return badRequest("Only dead records are requeued: search with the status dead.")
			}
			return nil
		},
	}
}

func (c *call) deleting() change {
	return change{
		action: "delete", title: "Delete", button: "Delete", past: "deleted", danger: true,
		one:  "The record is deleted, and is not delivered again. This cannot be undone.",
		many: "All records that match are deleted, and are not delivered again. This cannot be undone.",
		byID: c.store.Delete, where: roles.Repairs.DeleteWhere,
		check: func(query outmill.ListQuery) error {
			if query.Status == "" {
				return badRequest("A search without a status would also delete records that workers are handling: choose a status.")
			}
			return nil
		},
	}
}

func confirmRequeue(c *call) error { return c.confirm(c.requeueing()) }
func requeue(c *call) error        { return c.change(c.requeueing()) }
func confirmDelete(c *call) error  { return c.confirm(c.deleting()) }
func deleteRecords(c *call) error  { return c.change(c.deleting()) }

func (c *call) confirm(ch change) error {
	page := confirmation{Action: ch.action, Button: ch.button, Danger: ch.danger}
	if text := c.r.URL.Query().Get("id"); text != "" {
		id, err := c.id(text)
		if err != nil {
			return err
		}
		r, err := c.store.Get(c.ctx, id)
		if err != nil {
			return err
		}
		page.Text, page.Fields = ch.one, c.fields("id", text)
		page.Facts = []fact{{"Record", text}, {"Topic", r.Topic}, {"Status", string(r.Status)}}
		page.Back = c.page("record", "id", text)
		return c.render(200, "confirm", ch.title+" a record", page)
	}
	s := readSearch(c.r.URL.Query().Get)
	query, err := c.query(s)
	if err == nil {
		err = ch.check(query)
	}
	if err != nil {
		return err
	}
	page.Text, page.Facts, page.Fields = ch.many, s.facts(), c.fields(s.pairs()...)
	page.Back = c.page("records", s.pairs()...)
	if n, ok := c.estimate(s); ok {
		page.Facts = append(page.Facts, fact{"Records", n})
	}
	page.Facts = append(page.Facts, fact{"Stores", c.scope()})
	return c.render(200, "confirm", ch.title+" records", page)
}

// scope names the stores of a change.
func (c *call) scope() string {
	switch {
	case c.tenant != "":
		return c.tenant
	case c.isMany():
		return "all stores"
	}
	return c.store.Name()
}

// estimate counts the records of a search that has only group, topic and status dead.
func (c *call) estimate(s search) (string, bool) {
	bare := s
	bare.Group, bare.Topic = "", ""
	if bare != (search{Status: string(outmill.StatusDead)}) {
		return "", false
	}
	var dead total
	n := c.counts.look(c.ctx)
	for _, row := range c.chosen(n.rows) {
		if (s.Group == "" || s.Group == row.Group) && (s.Topic == "" || s.Topic == row.Topic) {
			dead.add(row.Dead, row.Dead >= n.limit)
		}
	}
	return dead.String(), true
}

func (c *call) change(ch change) error {
	if text := c.r.PostForm.Get("id"); text != "" {
		id, err := c.id(text)
		if err != nil {
			return err
		}
		n, err := ch.byID(c.ctx, id)
		if err != nil {
			return err
		}
		c.audit(ch.past+" a record", "record", text, "records", strconv.Itoa(n))
		back := c.page("record", "id", text)
		if ch.danger {
			back = c.page("records", "status", string(outmill.StatusDead))
		}
		if n == 0 {
			return c.done("Nothing was "+ch.past+": the record has another status by now, or is gone.", back)
		}
		return c.done(records(n)+" "+wasOrWere(n)+" "+ch.past+".", back)
	}
	return c.changeMany(ch)
}

// maxBefore bounds what a form says about earlier steps, which is only shown.
const maxBefore = 1_000_000_000

// before is how many records the earlier steps of a change have changed, by the form.
func (c *call) before() int {
	n, _ := strconv.Atoi(c.r.PostForm.Get("before"))
	return min(max(0, n), maxBefore)
}

func wasOrWere(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

// changeMany changes what the search finds for some seconds, and offers to go on. A change that is
// interrupted may be repeated.
func (c *call) changeMany(ch change) error {
	s := readSearch(c.r.PostForm.Get)
	query, err := c.query(s)
	if err == nil {
		err = ch.check(query)
	}
	if err != nil {
		return err
	}
	operator, ok := outmill.As[roles.Repairs](c.store)
	if !ok {
		return lacks("finds no records by a filter (roles.Repairs)")
	}
	before := c.before()
	changed, done := 0, false
	for end := time.Now().Add(min(changeTime, c.config.Timeout/2)); !done && time.Now().Before(end); {
		page, err := ch.where(operator, c.ctx, query)
		changed += page.Changed
		if err != nil {
			c.audit(ch.past+" records", "records", strconv.Itoa(changed), "error", "true")
			return err
		}
		query.After, done = page.Next, page.Done
	}
	pairs := []string{"records", strconv.Itoa(changed)}
	for _, f := range s.facts() {
		if f.Name != "Error text contains" {
			pairs = append(pairs, f.Name, f.Value)
		}
	}
	c.audit(ch.past+" records", pairs...)
	total := before + changed
	out := outcome{Text: records(total) + " " + wasOrWere(total) + " " + ch.past + ".", Back: c.page("records", search{
		Group: s.Group, Topic: s.Topic, Status: s.Status}.pairs()...)}
	if done {
		return c.render(200, "done", "Done", out)
	}
	s.After = query.After.String()
	out.Text += " More are left to look at."
	out.Again = &confirmation{Action: ch.action, Button: "Go on", Danger: ch.danger,
		Fields: c.fields(append(s.pairs(), "before", strconv.Itoa(total))...)}
	return c.render(200, "done", "Not done yet", out)
}
