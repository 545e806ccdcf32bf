package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

func groupsCommand(term terminal) *cobra.Command {
	return family(&cobra.Command{
		Use:   "groups",
		Short: "List, pause, resume and drop the groups that read a store",
	}, groupsList(term), groupsPause(), groupsResume(), groupsDrop(term))
}

func groupsList(term terminal) *cobra.Command {
	var on target
	var out output
	cmd := &cobra.Command{
		Use:   "list [URL | --source NAME]",
		Short: "List the groups, their topics and their workers",
		Long: `Lists the groups with the topics that they read, their workers, and when they were last
seen, and below them what is paused, since when and by whom, and the problems that workers
report, such as a broker that accepts nothing. Workers register about once a minute.
WORKERS counts those that have registered in the last 5 minutes and have not stopped since;
-o json names the others, too.`,
	}
	on.flags(cmd)
	out.flags(cmd)
	return does(cmd, func(ctx context.Context, args []string) error {
		url, _, err := on.take(args)
		if err != nil {
			return err
		}
		asJSON, err := out.json()
		if err != nil {
			return err
		}
		return on.with(ctx, url, func(store opened) error {
			groups, err := store.Groups(ctx)
			return showing(err, func() error {
				if asJSON {
					return printJSON(cmd.OutOrStdout(), groupsJSON(groups))
				}
				if err := printGroups(cmd.OutOrStdout(), term, groups); err != nil {
					return err
				}
				return printOtherPauses(ctx, cmd.OutOrStdout(), store, groups)
			})
		})
	})
}

func printGroups(w io.Writer, term terminal, groups []outmill.GroupInfo) error {
	if len(groups) == 0 {
		_, err := fmt.Fprintln(w, "No group reads this store.")
		return err
	}
	t := table{
		header: []string{"GROUP", "TOPICS", "WORKERS", "SEEN", "EXPIRES"}, right: map[string]bool{"WORKERS": true}, bold: term.colours(),
	}
	for _, g := range groups {
		if len(g.Registrations) == 0 {
			t.add(oneLine(g.Group, 60), "-", strconv.Itoa(living(g)), "ended "+orDash(stamp(g.EndedAt)), "-")
		}
		for _, r := range g.Registrations {
			t.add(oneLine(g.Group, 60), oneLine(topicsText(r.Topics), 60), strconv.Itoa(living(g)), age(time.Since(r.SeenAt))+" ago",
				orDash(stamp(r.ExpiresAt)))
		}
	}
	if err := t.print(w); err != nil {
		return err
	}
	for _, g := range groups {
		for _, r := range g.Registrations {
			if !r.Holding {
				continue
			}
			if _, err := fmt.Fprintf(w, "\n%s holds: it takes nothing that waits for a first group in %s until its destination has answered once.\n",
				oneLine(g.Group, 60), oneLine(topicsText(r.Topics), 60)); err != nil {
				return err
			}
		}
		for _, pause := range g.Pauses {
			if _, err := fmt.Fprintf(w, "\nPaused for %s: %s\n", oneLine(g.Group, 60), oneLine(pause, 300)); err != nil {
				return err
			}
		}
		if err := printProblems(w, g); err != nil {
			return err
		}
		for _, conflict := range storekit.ReadConflicts(g, runs) {
			if _, err := fmt.Fprintf(w, "\nProblem of %s: %s %s\n", oneLine(g.Group, 60), oneLine(conflict.String(), 600),
				storekit.ReadConflictRemedy); err != nil {
				return err
			}
		}
	}
	return nil
}

// unseenFor is the time after which a worker that does not register is gone. Workers register about once a
// minute.
const unseenFor = 5 * time.Minute

// living counts the workers of a group that run.
func living(g outmill.GroupInfo) (n int) {
	for _, w := range g.Workers {
		if runs(w) {
			n++
		}
	}
	return n
}

// runs reports whether a worker has not stopped and has registered of late.
func runs(w outmill.WorkerInfo) bool { return !w.Stopped && time.Since(w.SeenAt) <= unseenFor }

// printOtherPauses prints the pauses that concern no group yet.
func printOtherPauses(ctx context.Context, w io.Writer, store opened, groups []outmill.GroupInfo) error {
	pauses, ok := outmill.As[roles.Pauses](store.Store)
	if !ok {
		return nil
	}
	all, err := pauses.Paused(ctx)
	if storekit.NoneAnswered(err) {
		return err
	}
	for _, pause := range all {
		text := pause.String()
		if slices.ContainsFunc(groups, func(g outmill.GroupInfo) bool { return slices.Contains(g.Pauses, text) }) {
			continue
		}
		if _, err := fmt.Fprintf(w, "\nPaused, for no group yet: %s\n", oneLine(text, 300)); err != nil {
			return err
		}
	}
	return nil
}

func printProblems(w io.Writer, g outmill.GroupInfo) error {
	for _, worker := range g.Workers {
		for _, topic := range slices.Sorted(maps.Keys(worker.Problems)) {
			of := oneLine(g.Group, 60)
			if topic != "" {
				of += ", topic " + oneLine(topic, 60)
			}
			_, err := fmt.Fprintf(w, "\nProblem of %s: worker %s reported %s ago: %s\n", of, oneLine(worker.Name, 60),
				age(time.Since(worker.SeenAt)), oneLine(worker.Problems[topic], 300))
			if err != nil {
				return err
			}
		}
		for _, call := range worker.Failing {
			_, err := fmt.Fprintf(w, "\nProblem of %s: worker %s reported %s ago: %s has failed for %s, %d times: %s\n", oneLine(g.Group, 60),
				oneLine(worker.Name, 60), age(time.Since(worker.SeenAt)), oneLine(nameOf(call), 120), age(worker.SeenAt.Sub(call.Since)), call.Times,
				oneLine(call.Err, 300))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// nameOf names a call with its part and its tenant.
func nameOf(call outmill.FailingCall) string {
	name := call.Call
	if call.Part != "" {
		name += " (" + call.Part + ")"
	}
	if call.Store != "" {
		name += " of the tenant " + call.Store
	}
	return name
}

// topicsText shows a selection of topics on one line.
func topicsText(topics outmill.Topics) string {
	text := strings.Join(topics.Include, ", ")
	if text == "" {
		text = "all"
	}
	if len(topics.Exclude) > 0 {
		text += " except " + strings.Join(topics.Exclude, ", ")
	}
	return text
}

type groupView struct {
	Group         string             `json:"group"`
	SeenAt        *time.Time         `json:"seen_at,omitempty"`
	EndedAt       *time.Time         `json:"ended_at,omitempty"`
	Registrations []registrationView `json:"registrations"`
	Workers       []workerView       `json:"workers"`
	Pauses        []string           `json:"pauses,omitempty"`
}

type registrationView struct {
	Topics    string     `json:"topics"`
	SeenAt    *time.Time `json:"seen_at,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	// Holding says that the group takes nothing yet that waits for a first group.
	Holding bool `json:"holding,omitempty"`
}

type workerView struct {
	Name   string     `json:"name"`
	SeenAt *time.Time `json:"seen_at,omitempty"`
	// Stopped says that the worker stopped at SeenAt.
	Stopped bool `json:"stopped,omitempty"`
	// Problems has the texts by topic; the topic "" stands for all topics.
	Problems map[string]string `json:"problems,omitempty"`
	// Failing are the calls that failed at SeenAt.
	Failing []outmill.FailingCall `json:"failing,omitempty"`
	// Reads says in which orders the worker reads.
	Reads []readingView `json:"reads,omitempty"`
}

type readingView struct {
	Topics    string `json:"topics"`
	Order     string `json:"order"`
	KeyPolicy string `json:"key_policy,omitempty"`
}

func readings(reads []outmill.Reading) (views []readingView) {
	for _, r := range reads {
		view := readingView{Topics: topicsText(r.Topics), Order: r.Order.String()}
		if r.Order != outmill.OrderNone {
			view.KeyPolicy = r.KeyPolicy.String()
		}
		views = append(views, view)
	}
	return views
}

func groupsJSON(groups []outmill.GroupInfo) []groupView {
	views := []groupView{}
	for _, g := range groups {
		view := groupView{
			Group: g.Group, SeenAt: timeOrNil(g.SeenAt), EndedAt: timeOrNil(g.EndedAt),
			Registrations: []registrationView{}, Workers: []workerView{}, Pauses: g.Pauses,
		}
		for _, r := range g.Registrations {
			view.Registrations = append(view.Registrations,
				registrationView{Topics: topicsText(r.Topics), SeenAt: timeOrNil(r.SeenAt), ExpiresAt: timeOrNil(r.ExpiresAt),
					Holding: r.Holding})
		}
		for _, worker := range g.Workers {
			view.Workers = append(view.Workers, workerView{
				Name: worker.Name, SeenAt: timeOrNil(worker.SeenAt), Stopped: worker.Stopped, Problems: worker.Problems, Failing: worker.Failing,
				Reads: readings(worker.Reads),
			})
		}
		views = append(views, view)
	}
	return views
}

func groupsDrop(term terminal) *cobra.Command {
	var on target
	var yes bool
	cmd := &cobra.Command{
		Use:   "drop [URL | --source NAME] GROUP",
		Short: "Remove a group, and give back what only it has",
		Long: `Removes the registrations of a group. Its records that are not delivered, of topics that
no other group reads, are given back: they wait for the first group that registers for
their topic. Its other records are deleted: those that are dead or processed, and those of
topics that another group reads. The question names both numbers. The records of other
groups stay. Stop the group's workers first: one that runs registers the group again, within
a minute. You may interrupt the command and run it again.`,
		Example: "  outmill groups drop sqlite:orders.db audit",
	}
	on.flags(cmd)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return does(cmd, func(ctx context.Context, args []string) error {
		url, rest, err := on.take(args, "the name of the GROUP")
		if err != nil {
			return err
		}
		group := rest[0]
		if group == "" {
			return usagef("the name of the group is empty: want a name that outmill groups list shows")
		}
		return on.with(ctx, url, func(store opened) error {
			groups, err := store.Groups(ctx)
			if err != nil {
				return err
			}
			stats, err := store.Stats(ctx, mostCounted)
			if err != nil {
				return err
			}
			if err := term.confirm(dropQuestion(group, store.shown, storekit.ForecastDrop(group, groups, stats, mostCounted)), yes); err != nil {
				return err
			}
			dropped, err := store.DropGroup(ctx, group)
			if err != nil {
				return err
			}
			if dropped == (outmill.Dropped{}) && !slices.ContainsFunc(groups, func(g outmill.GroupInfo) bool { return g.Group == group }) {
				return fmt.Errorf("outmill: %s %s no group %q: outmill groups list shows the groups", store.shown, store.verb("has", "have"), group)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "The group %q is dropped: %s given back, %s deleted.\n", group,
				count(dropped.GivenBack, "record"), count(dropped.Deleted, "record"))
			return err
		})
	})
}
