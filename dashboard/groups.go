package dashboard

import (
	"errors"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// group is a line of the page of groups.
type group struct {
	outmill.GroupInfo
	Topics []registration
	// Silent says that no worker has registered the group for some minutes.
	Silent bool
	// Workers are the first ones; MoreWorkers counts the others.
	Workers     []outmill.WorkerInfo
	MoreWorkers int
}

type registration struct {
	Topics    string
	ExpiresAt time.Time
}

const (
	// silentAfter is three rounds of a janitor, each of which registers the group again.
	silentAfter = 3 * time.Minute
	maxWorkers  = 10
)

type groupsView struct {
	Groups []group
	Partly bool
	// AllStores says that the groups are those of all stores, whatever is chosen.
	AllStores bool
}

func groupsPage(c *call) error {
	infos, err := c.store.Groups(c.ctx)
	if err != nil && len(infos) == 0 {
		return err
	}
	if err != nil {
		c.log.Error("The dashboard could not list the groups of some stores", err, nil)
	}
	v := groupsView{Partly: err != nil, AllStores: c.isMany()}
	now := time.Now()
	for _, info := range infos {
		g := group{GroupInfo: info, Workers: info.Workers[:min(len(info.Workers), maxWorkers)]}
		g.MoreWorkers = len(info.Workers) - len(g.Workers)
		g.Silent = !info.SeenAt.IsZero() && now.Sub(info.SeenAt) > silentAfter
		for _, r := range info.Registrations {
			g.Topics = append(g.Topics, registration{topicsText(r.Topics), r.ExpiresAt})
		}
		v.Groups = append(v.Groups, g)
	}
	return c.render(200, "groups", "Groups", v)
}

// mostCounted limits each number of the confirmation of a drop.
const mostCounted = 10_000

func confirmDropGroup(c *call) error {
	group := c.r.URL.Query().Get("group")
	if group == "" {
		return badRequest("The address names no group.")
	}
	groups, err := c.store.Groups(c.ctx)
	if storekit.NoneAnswered(err) {
		return err
	}
	partly := err != nil
	stats, err := c.store.Stats(c.ctx, mostCounted)
	if storekit.NoneAnswered(err) {
		return err
	}
	f := storekit.ForecastDrop(group, groups, stats, mostCounted)
	least := ""
	if f.AtLeast || partly || err != nil {
		least = "at least "
	}
	return c.render(200, "confirm", "Drop a group", confirmation{
		Text: "This removes the registrations of the group and deletes its processed and dead records, and those of topics " +
			"that another group reads" + everywhere(c) + ". It cannot be undone. The other records wait for the first group that " +
			"registers for their topic. A group whose workers still run registers again.",
		Facts:  []fact{{"Group", group}, {"Given back", least + records(f.GivenBack)}, {"Deleted", least + records(f.Deleted())}},
		Action: "drop-group", Button: "Drop the group", Danger: true,
		Fields: c.fields("group", group), Back: c.page("groups"),
	})
}

// everywhere says that a change is one of all stores.
func everywhere(c *call) string {
	if c.isMany() {
		return ", in all stores"
	}
	return ""
}

func dropGroup(c *call) error {
	group := c.r.PostForm.Get("group")
	if group == "" {
		return badRequest("The form names no group.")
	}
	n, err := c.store.DropGroup(c.ctx, group)
	if err != nil && !errors.Is(err, outmill.ErrNotFound) {
		return err
	}
	c.audit("dropped a group", "group", group, "given_back", number(n.GivenBack), "deleted", number(n.Deleted))
	return c.done("The group was dropped: "+records(n.Deleted)+" deleted, "+records(n.GivenBack)+
		" given back to the first group that registers for their topic.", c.page("groups"))
}
