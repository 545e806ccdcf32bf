package dashboard

import (
	"context"
	"slices"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// topicView is the page of a topic of a group.
type topicView struct {
	Store        string
	Line         line
	Known        bool
	Waiting, Lag chart
	Pauses       []roles.PauseInfo
	CanPause     bool
	Limit        int
	Fresh        freshness
}

func topicPage(c *call) error {
	group, topic := c.r.URL.Query().Get("group"), c.r.URL.Query().Get("topic")
	if topic == "" {
		return badRequest("The address names no topic.")
	}
	return c.renderLive("topic", cut(topic, 80), c.topic(c.ctx, group, topic), "group", group, "topic", topic)
}

func (c *call) topic(ctx context.Context, group, topic string) topicView {
	n := c.counts.look(ctx)
	v := topicView{Store: c.tenant, Limit: n.limit, Fresh: c.freshness(n)}
	_, v.CanPause = outmill.As[roles.Pauses](c.store)
	row := outmill.TopicStats{Store: c.tenant, Group: group, Topic: topic}
	if i := slices.IndexFunc(n.rows, func(s outmill.TopicStats) bool { return seriesOf(s) == seriesOf(row) }); i >= 0 {
		row, v.Known = n.rows[i], true
	}
	v.Line = c.line(row, n)
	points := c.counts.trendOf(seriesOf(row))
	v.Waiting, v.Lag = waiting(n.limit).large(points), lag().large(points)
	for _, p := range n.pauses {
		if (p.Group == "" || p.Group == group) && (p.Topic == "" || p.Topic == topic) && (p.Store == "" || p.Store == c.tenant) {
			v.Pauses = append(v.Pauses, p)
		}
	}
	return v
}

// topicsText lists the topics of a registration.
func topicsText(t outmill.Topics) string {
	text := "all topics"
	if len(t.Include) > 0 {
		text = strings.Join(t.Include, ", ")
	}
	if len(t.Exclude) > 0 {
		text += ", without " + strings.Join(t.Exclude, ", ")
	}
	return text
}
