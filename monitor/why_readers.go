package monitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// unseen is the time after which a group that does not register again has no worker. Workers
// register about once a minute.
const unseen = 5 * time.Minute

func (w why) noGroup(r *outmill.Record) []Reason {
	var held []Reason
	for _, g := range w.groups {
		reads, holds := readsAndHolds(g, r.Topic)
		if reads {
			return []Reason{{Kind: "adoption", At: g.SeenAt, Text: fmt.Sprintf(
				"No group has it yet. Group %s reads its topic and gets it with its next registration; it last registered at %s.",
				quote(g.Group), w.at(g.SeenAt))}}
		}
		if holds && held == nil {
			held = append([]Reason{{Kind: "holding", At: g.SeenAt, Text: fmt.Sprintf(
				"No group has it yet. Group %s reads its topic and takes it once its destination has answered; another group that registers "+
					"for the topic before gets it. Group %s last registered at %s.", quote(g.Group), quote(g.Group), w.at(g.SeenAt))}},
				w.problem(g, "", "breaker")...)
		}
	}
	if held != nil {
		return held
	}
	return []Reason{{Kind: "no_group", Text: fmt.Sprintf(
		"No group is registered for topic %s. The record waits for the first that registers.", quote(r.Topic))}}
}

// readers says what keeps the group from reading the record.
func (w why) readers(r *outmill.Record) []Reason {
	for _, g := range w.groups {
		switch {
		case g.Group != r.Group:
			continue
		case len(g.Registrations) == 0:
			return []Reason{{Kind: "group_ended", At: g.EndedAt, Text: fmt.Sprintf(
				"The last registration of group %s ended at %s, so no worker reads it.", quote(g.Group), w.at(g.EndedAt))}}
		case !selects(g, r.Topic):
			return []Reason{{Kind: "not_selected", Text: fmt.Sprintf(
				"No registration of group %s selects topic %s any more.", quote(g.Group), quote(r.Topic))}}
		case w.now.Sub(g.SeenAt) > unseen:
			return []Reason{{Kind: "not_seen", At: g.SeenAt, Text: fmt.Sprintf(
				"Group %s last registered at %s. A worker registers about once a minute while it runs.",
				quote(g.Group), w.at(g.SeenAt))}}
		}
		if gone, since, text := absent(g, w.now, unseen); gone {
			return []Reason{{Kind: "not_seen", At: since, Text: fmt.Sprintf("Group %s has no worker: %s", quote(g.Group), text)}}
		}
		return slices.Concat(w.problem(g, "", "breaker"), w.problem(g, r.Topic, "on_hold"), w.handlerOf(g, r), w.reportOf(g, r))
	}
	return []Reason{{Kind: "group_ended", Text: fmt.Sprintf("Group %s has no registration, so no worker reads it.", quote(r.Group))}}
}

// problem gives the latest report of a problem with the topic, or with all topics ("").
func (w why) problem(g outmill.GroupInfo, topic, kind string) []Reason {
	var latest outmill.WorkerInfo
	var reports, workers int
	for _, worker := range g.Workers {
		if isGone(worker, w.now, unseen) {
			continue
		}
		workers++
		if worker.Problems[topic] == "" || isRepeat(worker.Problems[topic]) {
			continue
		}
		if reports++; worker.SeenAt.After(latest.SeenAt) {
			latest = worker
		}
	}
	if reports == 0 {
		return nil
	}
	text := fmt.Sprintf("Worker %s reported at %s: %s.", quote(latest.Name), w.at(latest.SeenAt), quote(latest.Problems[topic]))
	if workers > 1 {
		text += fmt.Sprintf(" Of %d workers of the group, %d report such a problem.", workers, reports)
	}
	return []Reason{{Kind: kind, At: latest.SeenAt, Text: text}}
}

// reports gives what workers of its group have reported of the record itself.
func (w why) reports(r *outmill.Record) []Reason {
	for _, g := range w.groups {
		if g.Group == r.Group {
			return append(w.handlerOf(g, r), w.reportOf(g, r)...)
		}
	}
	return nil
}

// handlerOf says which worker has reported that its handler of the record has run for long.
func (w why) handlerOf(g outmill.GroupInfo, r *outmill.Record) []Reason {
	for _, worker := range g.Workers {
		for _, h := range worker.Handling {
			if h.Record == r.ID && !isGone(worker, w.now, unseen) {
				return []Reason{{Kind: "handler_runs", At: h.Since, Text: fmt.Sprintf(
					"Its handler in worker %s has run since %s, as the worker reported at %s.", quote(worker.Name), w.at(h.Since), w.at(worker.SeenAt))}}
			}
		}
	}
	return nil
}

// reportOf gives what a worker has reported of the record itself.
func (w why) reportOf(g outmill.GroupInfo, r *outmill.Record) []Reason {
	for _, worker := range g.Workers {
		text := worker.Problems[r.Topic]
		if isGone(worker, w.now, unseen) || !isRepeat(text) || !strings.Contains(text, r.ID.String()) {
			continue
		}
		return []Reason{{Kind: "comes_again", At: worker.SeenAt, Text: fmt.Sprintf(
			"Worker %s reported at %s: %s.", quote(worker.Name), w.at(worker.SeenAt), quote(text))}}
	}
	return nil
}

// readsAndHolds reports whether the group gets what waits for a first group in the topic, and whether a
// registration for the topic holds.
func readsAndHolds(g outmill.GroupInfo, topic string) (reads, holds bool) {
	for _, registration := range g.Registrations {
		if registration.Topics.Match(topic) {
			reads, holds = reads || !registration.Holding, holds || registration.Holding
		}
	}
	return reads, holds
}

func selects(g outmill.GroupInfo, topic string) bool {
	for _, registration := range g.Registrations {
		if registration.Topics.Match(topic) {
			return true
		}
	}
	return false
}

// joins says what the record has to do with joins.
func (w why) joins(ctx context.Context, r *outmill.Record) ([]Reason, error) {
	var reasons []Reason
	if !r.WaitsFor.IsZero() && r.Status == outmill.StatusPending {
		state, err := w.joinState(ctx, r.WaitsFor)
		if err != nil {
			return nil, err
		}
		reasons = append(reasons, Reason{Kind: "waits_for_join", Join: r.WaitsFor,
			Text: fmt.Sprintf("It becomes due when join %s is decided. %s", r.WaitsFor, state)})
	}
	for _, join := range r.Joins {
		state, err := w.joinState(ctx, join)
		if err != nil {
			return nil, err
		}
		reasons = append(reasons, Reason{Kind: "step_of_join", Join: join, Text: fmt.Sprintf("It is a step of join %s. %s", join, state)})
	}
	return reasons, nil
}

func (w why) joinState(ctx context.Context, id outmill.JoinID) (string, error) {
	joins, ok := outmill.As[roles.Joins](w.store)
	if !ok {
		return "The store has no joins.", nil
	}
	join, err := joins.GetJoin(ctx, id)
	if errors.Is(err, roles.ErrUnknownJoin) {
		return "That join is no longer in the store.", nil
	}
	if err != nil {
		return "", err
	}
	steps := "an open number of"
	if !join.Unsealed {
		steps = fmt.Sprint(join.ExpectedSteps)
	}
	text := fmt.Sprintf("The join is %s: of %s steps %d are completed and %d failed",
		join.Status, steps, join.CompletedSteps, join.FailedSteps)
	if join.Status == roles.JoinPending && !join.Deadline.IsZero() {
		text += "; its deadline is " + w.at(join.Deadline)
	}
	return text + ".", nil
}

// paused says which pauses stop the record.
func (w why) paused(r *outmill.Record) []Reason {
	var reasons []Reason
	for _, p := range w.pauses {
		if p.Store != "" && p.Store != r.Store {
			continue
		}
		// A pause without a store is one of all of them.
		p.Store = r.Store
		if roles.NewPauseList(0, []roles.PauseInfo{p}).Covers(r) {
			reasons = append(reasons, Reason{Kind: "paused", At: p.At, Text: fmt.Sprintf("It is paused: %s.", oneLine(p))})
		}
	}
	return reasons
}

// oneLine shows a pause, whose scope quotes its texts; the name and the reason are quoted here.
func oneLine(p roles.PauseInfo) string {
	text := fmt.Sprintf("%s by %s since %s", p.PauseScope, quote(p.By), p.At.UTC().Format(time.RFC3339))
	if p.Reason != "" {
		text += ", because " + quote(p.Reason)
	}
	return text
}
