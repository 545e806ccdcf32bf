package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/storekit"
)

// waitsForGroup stands for the group of records that no group reads yet.
const waitsForGroup = "(no group)"

func statusCommand(term terminal) *cobra.Command {
	var on target
	var out output
	var watch bool
	var every time.Duration
	var limit int
	cmd := &cobra.Command{
		Use:   "status [URL | --source NAME]",
		Short: "Show how many records wait, by group and topic",
		Long: `Shows for each group and topic how many records are due, delayed (not due yet, for the
first time or after a failure), leased (a worker has them), dead, and processed (where the
store retains them), and for how long the oldest due record has waited. Each record is in
one of these columns. A record whose lease has ended is due. A due record may still wait
for an earlier one of its key.

Below the table it names what stands still: a group without a worker, a handler that hangs,
a lease that ended and that nobody takes, a record that fails again and again. outmill
doctor says more about them, and what to do.

A count ends at 10,000, or at fewer with more than two groups and topics, so that its
cost does not grow with the backlog: 10000+ says that there are that many or more.
--limit sets another end.`,
		Example: "  outmill status sqlite:orders.db\n  outmill status postgres://host/shop --watch",
	}
	on.flags(cmd)
	out.flags(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again and again, until it is interrupted")
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "the `TIME` between two looks of --watch")
	cmd.Flags().IntVar(&limit, "limit", 10_000, "count to this `NUMBER` at most; if not set, to fewer with more than two groups and topics")
	return does(cmd, func(ctx context.Context, args []string) error {
		url, _, err := on.take(args)
		if err != nil {
			return err
		}
		asJSON, err := out.json()
		if err != nil {
			return err
		}
		if every < 100*time.Millisecond {
			return usagef("--every is %s: want 100ms or more", every)
		}
		if limit < 1 {
			return usagef("--limit is %d: want 1 or more", limit)
		}
		return on.with(ctx, url, func(store opened) error {
			show := func() error {
				stats, limit, err := countTo(ctx, store, limit, cmd.Flags().Changed("limit"))
				nothingKnown := len(stats) == 0 && err != nil
				var problems []monitor.Problem
				if !nothingKnown {
					var problemsErr error
					problems, problemsErr = monitor.Standstill(ctx, store.Store, stats, monitor.DoctorConfig{})
					err = cmp.Or(err, problemsErr)
				}
				return showing(err, func() error {
					switch {
					case asJSON:
						return printJSON(cmd.OutOrStdout(), statusJSON(stats, limit, problems))
					case nothingKnown:
						return nil
					}
					return errors.Join(printStatus(cmd.OutOrStdout(), term, store, stats, limit), printStandstill(cmd.OutOrStdout(), problems))
				})
			}
			if !watch {
				return show()
			}
			return repeat(ctx, every, func(first bool) error {
				if isTerminal(term.out) {
					// The cursor goes home, and then the old text is cleared, so that the screen does not flicker.
					fmt.Fprint(term.out, "\x1b[H\x1b[J")
				}
				err := show()
				if err == nil || ctx.Err() != nil || first && storekit.NoneAnswered(err) {
					return err
				}
				// A database that is away for a while does not end the watch.
				fmt.Fprintln(term.err, term.hide(failureText(ctx, store.remedy(err))))
				return nil
			})
		})
	})
}

// countTo counts to the limit that the user chose, or else to one that keeps the answer quick.
func countTo(ctx context.Context, store outmill.Inspector, limit int, chosen bool) ([]outmill.TopicStats, int, error) {
	if !chosen {
		return storekit.QuickStats(ctx, store)
	}
	stats, err := store.Stats(ctx, limit)
	return stats, limit, err
}

// repeat calls fn now and after each pause, until fn fails, or the context ends, which is not an error.
func repeat(ctx context.Context, every time.Duration, fn func(first bool) error) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for first := true; ; first = false {
		if err := fn(first); err != nil {
			if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
				return nil
			}
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func printStatus(w io.Writer, term terminal, store opened, stats []outmill.TopicStats, limit int) error {
	if len(stats) == 0 {
		_, err := fmt.Fprintf(w, "%s %s no records.\n", store.shown, store.verb("has", "have"))
		return err
	}
	t := table{
		header: []string{"GROUP", "TOPIC", "DUE", "DELAYED", "LEASED", "DEAD", "PROCESSED", "OLDEST DUE"},
		right:  map[string]bool{"DUE": true, "DELAYED": true, "LEASED": true, "DEAD": true, "PROCESSED": true, "OLDEST DUE": true},
		bold:   term.colours(),
	}
	t.withStores(slices.ContainsFunc(stats, func(s outmill.TopicStats) bool { return s.Store != "" }))
	for _, s := range stats {
		oldest := "-"
		if !s.OldestDue.IsZero() {
			oldest = age(time.Since(s.OldestDue))
		}
		group := s.Group
		if group == "" {
			group = waitsForGroup
		}
		t.addOf(s.Store, oneLine(group, 60), oneLine(s.Topic, 60), due(s, limit), upTo(s.Delayed, limit), upTo(s.Leased, limit),
			upTo(s.Dead, limit), upTo(s.Processed, limit), oldest)
	}
	return t.print(w)
}

// printStandstill prints what keeps records from being handled.
func printStandstill(w io.Writer, problems []monitor.Problem) error {
	for _, p := range problems {
		if _, err := fmt.Fprintf(w, "\n%s: %s\n", p.Kind, oneLine(p.Text, 0)); err != nil {
			return err
		}
	}
	return nil
}

// due is how many pending records are due. Where Pending ends at the limit, this is a lower
// bound, or unknown if all that were counted may be delayed.
func due(s outmill.TopicStats, limit int) string {
	switch {
	case s.Pending < limit:
		return strconv.Itoa(s.Pending - s.Delayed)
	case s.Delayed >= limit:
		return "?"
	}
	return strconv.Itoa(limit-s.Delayed) + "+"
}

func upTo(n, limit int) string {
	if n >= limit {
		return strconv.Itoa(limit) + "+"
	}
	return strconv.Itoa(n)
}

type topicStatus struct {
	Group   string `json:"group"`
	Topic   string `json:"topic"`
	Pending int    `json:"pending"`
	// Delayed counts those of Pending that are not due yet.
	Delayed   int        `json:"delayed"`
	Leased    int        `json:"leased"`
	Dead      int        `json:"dead"`
	Processed int        `json:"processed"`
	OldestDue *time.Time `json:"oldest_due,omitempty"`
	Store     string     `json:"store,omitempty"`
}

type statusReport struct {
	// Limit is where the counts end: a count that equals it means this many or more.
	Limit  int           `json:"limit"`
	Topics []topicStatus `json:"topics"`
	// Problems are what keeps records from being handled; doctor has the remedies and the other ones.
	Problems []monitor.Problem `json:"problems,omitempty"`
}

func statusJSON(stats []outmill.TopicStats, limit int, problems []monitor.Problem) statusReport {
	report := statusReport{Limit: limit, Topics: []topicStatus{}, Problems: problems}
	for _, s := range stats {
		report.Topics = append(report.Topics, topicStatus{
			Group: s.Group, Topic: s.Topic, Pending: s.Pending, Delayed: s.Delayed, Leased: s.Leased, Dead: s.Dead, Processed: s.Processed,
			OldestDue: timeOrNil(s.OldestDue), Store: s.Store,
		})
	}
	return report
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
