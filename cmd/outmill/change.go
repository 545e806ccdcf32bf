package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// askAbove is how many records a command changes without asking first.
const askAbove = 100

// change is a command that changes all records that match a filter, or the named ones.
type change struct {
	target
	output
	filter
	actor
	term   terminal
	verb   string // requeue
	done   string // requeued
	limit  int
	rate   int
	dryRun bool
	yes    bool
	// byFilter and byIDs are the calls of the store.
	byFilter func(ctx context.Context, operator roles.Repairs, query outmill.ListQuery) (roles.Page, error)
	byIDs    func(ctx context.Context, store outmill.Store, ids ...outmill.WorkItemID) (int, error)
}

func requeueCommand(term terminal) *cobra.Command {
	c := &change{
		term: term, verb: "requeue", done: "requeued",
		byFilter: func(ctx context.Context, operator roles.Repairs, query outmill.ListQuery) (roles.Page, error) {
			return operator.RequeueWhere(ctx, query)
		},
		byIDs: func(ctx context.Context, store outmill.Store, ids ...outmill.WorkItemID) (int, error) {
			return store.Requeue(ctx, ids...)
		},
	}
	cmd := &cobra.Command{
		Use:   "requeue [URL | --source NAME] [ID…]",
		Short: "Make dead records due again",
		Long: `Makes dead records due at once, with their attempts set to 0: those with the given
ids, or all that match the filter. Records that were parked with the key of one of them
come along.`,
		Example: `  outmill requeue sqlite:orders.db --topic orders --dry-run
  outmill requeue sqlite:orders.db --topic orders --error timeout --rate 500
  outmill requeue sqlite:orders.db 01890a5d-ac96-774b-bcce-b302099a8057`,
	}
	return c.prepare(cmd, false)
}

func deleteCommand(term terminal) *cobra.Command {
	c := &change{
		term: term, verb: "delete", done: "deleted",
		byFilter: func(ctx context.Context, operator roles.Repairs, query outmill.ListQuery) (roles.Page, error) {
			return operator.DeleteWhere(ctx, query)
		},
		byIDs: func(ctx context.Context, store outmill.Store, ids ...outmill.WorkItemID) (int, error) {
			return store.Delete(ctx, ids...)
		},
	}
	cmd := &cobra.Command{
		Use:   "delete [URL | --source NAME] [ID…]",
		Short: "Delete records for ever",
		Long: `Deletes the records with the given ids, or all that match the filter, which must not
be empty. Without --status it also deletes records that wait, or that a worker handles.`,
		Example: `  outmill delete sqlite:orders.db --status dead --older-than 30d --dry-run
  outmill delete sqlite:orders.db 01890a5d-ac96-774b-bcce-b302099a8057`,
	}
	return c.prepare(cmd, true)
}

func (c *change) prepare(cmd *cobra.Command, withStatus bool) *cobra.Command {
	cmd.Long += fmt.Sprintf(`

More than %d records are changed only after a question, or with --yes. The work is done
in small steps that each stay done. You may interrupt the command and run it again: it
then continues with the records that still match.`, askAbove)
	c.target.flags(cmd)
	c.output.flags(cmd)
	c.filter.flags(cmd, withStatus)
	c.actor.flags(cmd)
	flags := cmd.Flags()
	flags.IntVar(&c.limit, "limit", 0, c.verb+" this `NUMBER` of records at most; 0 is all that match")
	flags.IntVar(&c.rate, "rate", 0, c.verb+" this `NUMBER` of records per second at most; 0 is as fast as possible")
	flags.BoolVar(&c.dryRun, "dry-run", false, "only count the records")
	flags.BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	return does(cmd, func(ctx context.Context, args []string) error { return c.run(ctx, cmd, args) })
}

// changed is the result of a command as JSON.
type changed struct {
	Action string `json:"action"`
	// Count is the number of changed records; with DryRun, the number that match.
	Count    int  `json:"count"`
	Examined int  `json:"examined"`
	DryRun   bool `json:"dry_run"`
	// Done says that no record is left that matches.
	Done bool `json:"done"`
	// NotFound and NotDead are those of the given ids that were not changed: the store has no such record, or
	// a record that cannot be requeued.
	NotFound []string `json:"not_found,omitempty"`
	NotDead  []string `json:"not_dead,omitempty"`
}

func (c *change) run(ctx context.Context, cmd *cobra.Command, args []string) error {
	url, ids, err := c.takeIDs(args)
	if err != nil {
		return err
	}
	asJSON, err := c.json()
	if err != nil {
		return err
	}
	query, err := c.resolve()
	if err != nil {
		return err
	}
	if err := c.check(query, len(ids)); err != nil {
		return err
	}
	return c.with(ctx, url, func(store opened) error {
		ctx := c.named(ctx)
		result := changed{Action: c.verb, DryRun: c.dryRun, Done: true}
		var err error
		if len(ids) > 0 {
			err = c.each(ctx, store, ids, &result)
		} else {
			err = c.bulk(ctx, store, query, &result)
		}
		if storekit.NoneAnswered(err) && !c.dryRun && result.Count > 0 {
			err = fmt.Errorf("%w\noutmill: %d records were %s before that; run the same command again to continue", err, result.Count, c.done)
		}
		result.Done = result.Done && err == nil
		return showing(err, func() error {
			show := c.report
			if asJSON {
				show = func(cmd *cobra.Command, result changed) error { return printJSON(cmd.OutOrStdout(), result) }
			}
			return errors.Join(show(cmd, result), c.notFound(store, len(ids), result))
		})
	})
}

func (c *change) check(query outmill.ListQuery, ids int) error {
	filtered := selects(query) || !query.After.IsZero()
	switch {
	case ids > 0 && (filtered || c.limit != 0 || c.rate != 0):
		return usagef("want ids of records or a filter, not both")
	case ids == 0 && c.verb == "delete" && !selects(query):
		return usagef("want ids of records or a filter, such as --status dead: without one, every record would be deleted")
	case c.limit < 0:
		return usagef("--limit is %d: want 1 or more, or 0 for all records that match", c.limit)
	case c.rate < 0:
		return usagef("--rate is %d: want 1 or more records per second, or 0 for no limit", c.rate)
	}
	return nil
}

func (c *change) report(cmd *cobra.Command, result changed) error {
	var err error
	if c.dryRun {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s would be %s.\n", count(result.Count, "record"), c.done)
	} else {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s.\n", count(result.Count, "record"), c.done)
	}
	return err
}

// each changes the records with the ids, or counts those that it would change.
func (c *change) each(ctx context.Context, store opened, ids []outmill.WorkItemID, result *changed) error {
	var found []outmill.WorkItemID
	// failed is of some of several stores, which may have the record.
	var failed error
	for i, id := range ids {
		if slices.Contains(ids[:i], id) {
			continue
		}
		r, err := store.Get(ctx, id)
		switch {
		case errors.Is(err, outmill.ErrNotFound):
			result.NotFound = append(result.NotFound, id.String())
		case storekit.SomeAnswered(err):
			failed = err
			fmt.Fprintf(c.term.err, "Record %s is in none of the stores that answered.\n", id)
		case err != nil:
			return err
		case c.verb == "requeue" && r.Status != outmill.StatusDead:
			result.NotDead = append(result.NotDead, id.String())
			fmt.Fprintf(c.term.err, "Record %s is %s, not dead: there is nothing to requeue.\n", id, r.Status)
		default:
			found = append(found, id)
		}
	}
	if result.Count = len(found); c.dryRun || len(found) == 0 {
		return failed
	}
	var err error
	result.Count, err = c.byIDs(ctx, store.Store, found...)
	return cmp.Or(err, failed)
}

// notFound is an error if the store lacks some of the records.
func (c *change) notFound(store opened, ids int, result changed) error {
	if len(result.NotFound) == 0 {
		return nil
	}
	return fmt.Errorf("outmill: %d of %s %s not found in %s: %s: processed and deleted, or in another store: outmill list shows the ids",
		len(result.NotFound), count(ids, "id"), wasOrWere(len(result.NotFound)), store.shown, strings.Join(result.NotFound, ", "))
}

func wasOrWere(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

func (c *change) bulk(ctx context.Context, store opened, query outmill.ListQuery, result *changed) error {
	operator, err := store.repairs()
	if err != nil {
		return err
	}
	if c.verb == "requeue" {
		query.Status = outmill.StatusDead
	}
	if c.dryRun {
		return c.count(ctx, operator, query, result)
	}
	if err := c.askFirst(ctx, store, operator, query); err != nil {
		return err
	}
	return c.change(ctx, operator, query, result, newProgress(c.term.err, c.done, about(ctx, store, query)))
}

// count counts the records that match.
func (c *change) count(ctx context.Context, operator roles.Repairs, query outmill.ListQuery, result *changed) error {
	progress := newProgress(c.term.err, "looked at", 0)
	defer progress.end()
	var failed error
	for result.Done = false; !result.Done; {
		if query.Limit = c.step(result.Count); query.Limit == 0 {
			return failed
		}
		began := time.Now()
		page, err := operator.Find(ctx, query)
		if failed = cmp.Or(err, failed); endsWork(err, began) {
			return err
		}
		result.Count += len(page.Records)
		result.Examined += page.Examined
		result.Done, query.After = page.Done, page.Next
		progress.show(result.Examined)
	}
	return failed
}

// askFirst asks where more than askAbove records match.
func (c *change) askFirst(ctx context.Context, store opened, operator roles.Repairs, query outmill.ListQuery) error {
	if c.yes || c.limit > 0 && c.limit <= askAbove {
		return nil
	}
	found, err := findUpTo(ctx, operator, query, askAbove+1, newProgress(c.term.err, "looked at", 0))
	switch {
	case storekit.SomeAnswered(err):
		// The others may answer when the records are changed.
		return c.term.confirm(fmt.Sprintf("This would %s %s of %s. Some stores did not answer, so nobody knows how many records that is.",
			c.verb, describe(query), store.shown), c.yes)
	case err != nil:
		return err
	case len(found.records) <= askAbove:
		return nil
	}
	return c.term.confirm(fmt.Sprintf("This would %s more than %d %s of %s.", c.verb, askAbove, describe(query), store.shown), c.yes)
}

// about is how many records match, as far as the store counts them without looking at each; 0
// where it does not.
func about(ctx context.Context, store opened, query outmill.ListQuery) (n int) {
	const limit = 1_000_000
	if query.Status != outmill.StatusDead || (outmill.ListQuery{Status: query.Status, Group: query.Group, Topic: query.Topic}) != query {
		return 0
	}
	// The number is only for the progress, so an error shows with the next call.
	stats, _ := store.Stats(ctx, limit)
	for _, s := range stats {
		if (query.Group == "" || query.Group == s.Group) && (query.Topic == "" || query.Topic == s.Topic) {
			n += s.Dead
		}
	}
	return n
}

// change changes the records that match, in steps.
func (c *change) change(
	ctx context.Context, operator roles.Repairs, query outmill.ListQuery, result *changed, progress *progress,
) error {
	defer progress.end()
	pace := newPace(c.rate)
	// failed is of some of several stores. The work goes on in the others.
	var failed error
	for result.Done = false; !result.Done; {
		if query.Limit = c.step(result.Count); query.Limit == 0 {
			return failed
		}
		began := time.Now()
		page, err := c.byFilter(ctx, operator, query)
		result.Count += page.Changed
		result.Examined += page.Examined
		if failed = cmp.Or(err, failed); endsWork(err, began) {
			return err
		}
		result.Done, query.After = page.Done, page.Next
		progress.show(result.Count)
		if !result.Done {
			if err := pace.wait(ctx, result.Count); err != nil {
				return err
			}
		}
	}
	return failed
}

// step is how many records the next call may change.
func (c *change) step(done int) int {
	const largest = 1000
	step := largest
	if c.rate > 0 {
		// Ten steps a second keep the load even.
		step = min(step, max(c.rate/10, 1))
	}
	if c.limit > 0 {
		step = min(step, max(c.limit-done, 0))
	}
	return step
}

// pace holds work to a number of records per second.
type pace struct {
	rate  int
	began time.Time
}

func newPace(rate int) pace { return pace{rate: rate, began: time.Now()} }

// wait returns when n records may be done since the beginning.
func (p pace) wait(ctx context.Context, n int) error {
	if p.rate <= 0 {
		return interrupted(ctx)
	}
	due := p.began.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return interrupted(ctx)
	case <-timer.C:
		return nil
	}
}

func interrupted(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("outmill: %w", ctx.Err())
}
