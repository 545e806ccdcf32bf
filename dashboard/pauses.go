package dashboard

import (
	"cmp"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

type pausesView struct {
	Pauses []roles.PauseInfo
	Many   bool
}

// pausing is the role of the store, or the error that it lacks it.
func (c *call) pausing() (roles.Pauses, error) {
	pauses, ok := outmill.As[roles.Pauses](c.store)
	if !ok {
		return nil, lacks("has no pauses (roles.Pauses)")
	}
	return pauses, nil
}

func pausesPage(c *call) error {
	role, err := c.pausing()
	if err != nil {
		return err
	}
	list, err := role.Paused(c.ctx)
	if isLack(err) {
		return lacks("has no pauses (roles.Pauses)")
	}
	if err != nil {
		return err
	}
	return c.render(200, "pauses", "Pauses", pausesView{Pauses: list, Many: c.isMany()})
}

func readScope(get func(name string) string) roles.PauseScope {
	return roles.PauseScope{Group: get("group"), Topic: get("topic"), Key: get("key"), TenantID: get("tenant")}
}

func scopeFacts(s roles.PauseScope) []fact {
	var facts []fact
	for _, f := range []fact{{"Group", s.Group}, {"Topic", s.Topic}, {"Key", s.Key}, {"Tenant id", s.TenantID}} {
		if f.Value != "" {
			facts = append(facts, f)
		}
	}
	return facts
}

func confirmPause(c *call) error {
	if _, err := c.pausing(); err != nil {
		return err
	}
	s := readScope(c.r.URL.Query().Get)
	return c.render(200, "confirm", "Pause deliveries", confirmation{
		Text: "No claim returns the records that match all fields, in any process, until they are resumed. Handlers that are running " +
			"continue, and appends too. An empty field matches everything; at least one must be set, and a key needs its topic.",
		Facts: []fact{{"Stores", c.scope()}}, Action: "pause", Button: "Pause", Danger: true,
		Fields: c.fields(),
		Inputs: []input{
			{"group", "Group", s.Group, "", 255},
			{"topic", "Topic", s.Topic, "The exact name", 255},
			{"key", "Key", s.Key, "", 255},
			{"tenant", "Tenant id", s.TenantID, "", 255},
			{"reason", "Reason", "", "Others read it", 1000},
		},
		Back: c.page("pauses"),
	})
}

func pause(c *call) error {
	role, err := c.pausing()
	if err != nil {
		return err
	}
	scope := readScope(c.r.PostForm.Get)
	if err := role.Pause(c.ctx, scope, c.user, c.r.PostForm.Get("reason")); err != nil {
		if isLack(err) {
			return lacks("has no pauses (roles.Pauses)")
		}
		return err
	}
	c.audit("paused deliveries", "scope", scope.String())
	return c.done("Deliveries are paused.", c.page("pauses"))
}

func confirmResume(c *call) error {
	if _, err := c.pausing(); err != nil {
		return err
	}
	s := readScope(c.r.URL.Query().Get)
	return c.render(200, "confirm", "Resume deliveries", confirmation{
		Text:  "Deliveries continue where the pause stopped them, in the order of the keys. Other pauses stay.",
		Facts: append(scopeFacts(s), fact{"Stores", c.scope()}), Action: "resume", Button: "Resume",
		Fields: c.fields("group", s.Group, "topic", s.Topic, "key", s.Key, "tenant", s.TenantID),
		Back:   c.page("pauses"),
	})
}

func resume(c *call) error {
	role, err := c.pausing()
	if err != nil {
		return err
	}
	scope := readScope(c.r.PostForm.Get)
	there, err := role.Resume(c.ctx, scope)
	if err != nil {
		return err
	}
	if !there {
		return c.done("There was no such pause.", c.page("pauses"))
	}
	c.audit("resumed deliveries", "scope", cmp.Or(scope.String(), "everything"))
	return c.done("Deliveries are resumed.", c.page("pauses"))
}
