package dashboard

import (
	"errors"
	"slices"
	"strconv"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/tenants"
)

const joinsAtOnce = 50

type joinsView struct {
	Joins    []*roles.Join
	Status   roles.JoinStatus
	Grouping string
	Statuses []roles.JoinStatus
	Next     string
}

// joining is the role of the store, or the error that it lacks it.
func (c *call) joining() (roles.Joins, error) {
	joins, ok := outmill.As[roles.Joins](c.store)
	if !ok {
		return nil, lacks("has no joins (roles.Joins)")
	}
	return joins, nil
}

// ofOneStore explains the errors of calls that need one store of many.
func ofOneStore(err error, role string) error {
	switch {
	case errors.Is(err, tenants.ErrNoTenant):
		return &problem{200, "Each of the stores has its own " + role + ": choose one on the page Stores."}
	case isLack(err):
		return lacks("has no " + role)
	}
	return err
}

func joinsPage(c *call) error {
	role, err := c.joining()
	if err != nil {
		return err
	}
	query := c.r.URL.Query()
	v := joinsView{
		Status: roles.JoinStatus(query.Get("status")), Grouping: query.Get("grouping"),
		Statuses: []roles.JoinStatus{roles.JoinPending, roles.JoinCompleted, roles.JoinFailed, roles.JoinCancelled},
	}
	if !query.Has("status") {
		v.Status = roles.JoinPending
	}
	q := roles.JoinQuery{Status: v.Status, GroupingKey: v.Grouping, Limit: joinsAtOnce + 1}
	if after := query.Get("after"); after != "" {
		if q.After, err = outmill.ParseJoinID(after); err != nil {
			return badRequest("The id after which the list goes on is no id of a join.")
		}
	}
	if v.Joins, err = role.ListJoins(c.ctx, q); err != nil {
		return ofOneStore(err, "joins (roles.Joins)")
	}
	if len(v.Joins) > joinsAtOnce {
		v.Joins = v.Joins[:joinsAtOnce]
		v.Next = c.page("joins", "status", string(v.Status), "grouping", v.Grouping, "after", v.Joins[joinsAtOnce-1].ID.String())
	}
	return c.render(200, "joins", "Joins", v)
}

type joinView struct {
	Join  *roles.Join
	Facts []fact
	Times []moment
	Steps []roles.JoinStep
	Next  string
	// Metadata is data of users.
	Metadata []fact
	Open     bool
}

func joinPage(c *call) error {
	role, err := c.joining()
	if err != nil {
		return err
	}
	id, err := c.joinID(c.r.URL.Query().Get("id"))
	if err != nil {
		return err
	}
	var after outmill.WorkItemID
	if text := c.r.URL.Query().Get("after"); text != "" {
		if after, err = c.id(text); err != nil {
			return err
		}
	}
	join, err := role.GetJoin(c.ctx, id)
	if err != nil {
		return ofOneStore(err, "joins (roles.Joins)")
	}
	v := joinView{Join: join, Facts: joinFacts(join), Times: joinTimes(join), Open: join.Status == roles.JoinPending}
	if v.Steps, err = role.ListSteps(c.ctx, id, after, joinsAtOnce+1); err != nil {
		return err
	}
	if len(v.Steps) > joinsAtOnce {
		v.Steps = v.Steps[:joinsAtOnce]
		v.Next = c.page("join", "id", id.String(), "after", v.Steps[joinsAtOnce-1].ID.String())
	}
	if c.config.ShowPayloads {
		v.Metadata, _ = metadata(join.Metadata)
	}
	return c.render(200, "join", "Join", v)
}

func joinFacts(j *roles.Join) []fact {
	expected := strconv.Itoa(j.ExpectedSteps)
	if j.Unsealed {
		expected = "not known yet"
	}
	policy := string(j.Policy)
	if j.Policy == roles.JoinQuorum {
		policy += " of " + strconv.Itoa(j.Quorum)
	}
	all := []fact{
		{"Join id", j.ID.String()}, {"Grouping key", j.GroupingKey}, {"Policy", policy}, {"Expected steps", expected},
		{"Completed steps", strconv.Itoa(j.CompletedSteps)}, {"Failed steps", strconv.Itoa(j.FailedSteps)}, {"Reason", j.Reason},
	}
	return slices.DeleteFunc(all, func(f fact) bool { return f.Value == "" })
}

func joinTimes(j *roles.Join) []moment {
	all := []moment{
		{Name: "Started", At: j.CreatedAt}, {Name: "Changed", At: j.UpdatedAt}, {Name: "Ended", At: j.FinishedAt},
		{Name: "Deadline", At: j.Deadline},
	}
	return slices.DeleteFunc(all, func(m moment) bool { return m.At.IsZero() })
}

func (c *call) joinID(text string) (outmill.JoinID, error) {
	id, err := outmill.ParseJoinID(text)
	if err != nil {
		return id, badRequest("The address has no id of a join.")
	}
	return id, nil
}

func confirmCancelJoin(c *call) error {
	if _, err := c.joining(); err != nil {
		return err
	}
	text := c.r.URL.Query().Get("id")
	if _, err := c.joinID(text); err != nil {
		return err
	}
	return c.render(200, "confirm", "Cancel a join", confirmation{
		Text:  "The join ends as cancelled. Its steps continue, and their outcomes are no longer counted. This cannot be undone.",
		Facts: []fact{{"Join", text}}, Action: "cancel-join", Button: "Cancel the join", Danger: true,
		Fields: c.fields("id", text), Inputs: []input{{"reason", "Reason", "", "The join keeps it", 255}}, Back: c.page("join", "id", text),
	})
}

func cancelJoin(c *call) error {
	role, err := c.joining()
	if err != nil {
		return err
	}
	id, err := c.joinID(c.r.PostForm.Get("id"))
	if err != nil {
		return err
	}
	reason := c.r.PostForm.Get("reason")
	if reason == "" {
		reason = "by " + c.user
	}
	if err := role.CancelJoin(c.ctx, id, reason); err != nil {
		return ofOneStore(err, "joins (roles.Joins)")
	}
	c.audit("cancelled a join", "join", id.String())
	return c.done("The join is cancelled.", c.page("join", "id", id.String()))
}
