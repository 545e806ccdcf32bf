package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// skip is the command that removes a dead record and releases what waits behind it.
type skip struct {
	target
	output
	actor
	term   terminal
	dryRun bool
	yes    bool
}

func skipCommand(term terminal) *cobra.Command {
	s := &skip{term: term}
	cmd := &cobra.Command{
		Use:   "skip [URL | --source NAME] ID",
		Short: "Delete a dead record and release what waits behind it",
		Long: fmt.Sprintf(`Deletes a dead record without handling it. If the record is the first of a parked key, the
records that wait behind it become due, in their order. A step of a join stays failed.

If more than %d records wait, the command asks first, or wants --yes. It works in small
steps. You may interrupt it and run it again: the record stays until all others are back.`, askAbove),
		Example: `  outmill skip sqlite:orders.db 01890a5d-ac96-774b-bcce-b302099a8057 --dry-run
  outmill skip sqlite:orders.db 01890a5d-ac96-774b-bcce-b302099a8057`,
	}
	s.target.flags(cmd)
	s.output.flags(cmd)
	s.actor.flags(cmd)
	cmd.Flags().BoolVar(&s.dryRun, "dry-run", false, "only say how many records wait behind it")
	cmd.Flags().BoolVarP(&s.yes, "yes", "y", false, "do not ask")
	return does(cmd, func(ctx context.Context, args []string) error { return s.run(ctx, cmd, args) })
}

// skipped is the result as JSON.
type skipped struct {
	Action string `json:"action"`
	ID     string `json:"id"`
	// Released is how many records came back; with DryRun, how many wait, up to
	// roles.MaxWaiting.
	Released int  `json:"released"`
	DryRun   bool `json:"dry_run"`
	Done     bool `json:"done"`
}

func (s *skip) run(ctx context.Context, cmd *cobra.Command, args []string) error {
	url, ids, err := s.takeIDs(args)
	if err != nil {
		return err
	}
	asJSON, err := s.json()
	if err != nil {
		return err
	}
	if len(ids) != 1 {
		return notOneID(ids)
	}
	return s.with(ctx, url, func(store opened) error {
		ctx := s.named(ctx)
		bench, err := store.repairs()
		if err != nil {
			return err
		}
		waiting, err := s.waiting(ctx, store, bench, ids[0])
		if err != nil {
			return err
		}
		result := skipped{Action: "skip", ID: ids[0].String(), DryRun: s.dryRun}
		if s.dryRun {
			result.Released, result.Done = waiting, true
		} else if err := s.release(ctx, store, bench, ids[0], waiting, &result); err != nil {
			return err
		}
		if asJSON {
			return printJSON(cmd.OutOrStdout(), result)
		}
		text := fmt.Sprintf("The record is deleted. %s released.\n", count(result.Released, "record"))
		if s.dryRun {
			text = fmt.Sprintf("The record would be deleted, and %s behind it released.\n", waitingRecords(waiting))
		}
		_, err = fmt.Fprint(cmd.OutOrStdout(), text)
		return err
	})
}

// waiting is how many records wait behind a dead record.
func (s *skip) waiting(ctx context.Context, store opened, bench roles.Repairs, id outmill.WorkItemID) (int, error) {
	r, err := store.get(ctx, id)
	if err != nil {
		return 0, err
	}
	if r.Status != outmill.StatusDead {
		return 0, notDead(r)
	}
	ctx = storekit.InStoreOf(ctx, store.Store, r)
	// The dead letters of the key and message are few, and one of them may be the record.
	query := outmill.ListQuery{Group: r.Group, Topic: r.Topic, Key: r.Key, MessageID: r.MessageID}
	for {
		page, err := bench.DeadLetters(ctx, query)
		if err != nil {
			return 0, err
		}
		for _, l := range page.Letters {
			if l.Record.ID == id {
				return l.Waiting, nil
			}
		}
		if query.After = page.Next; page.Done {
			return 0, nil
		}
	}
}

func (s *skip) release(
	ctx context.Context, store opened, bench roles.Repairs, id outmill.WorkItemID, waiting int, result *skipped,
) error {
	if waiting > askAbove {
		question := fmt.Sprintf("This would delete the record and release %s behind it in %s.", waitingRecords(waiting), store.shown)
		if err := s.term.confirm(question, s.yes); err != nil {
			return err
		}
	}
	progress := newProgress(s.term.err, "released", 0)
	defer progress.end()
	for !result.Done {
		step, err := bench.Skip(ctx, id)
		result.Released += step.Released
		if err != nil && result.Released > 0 {
			err = fmt.Errorf("%w\noutmill: %s released before that; run the same command again to continue", err, count(result.Released, "record"))
		}
		if err != nil {
			return err
		}
		result.Done = step.Done
		progress.show(result.Released)
	}
	return nil
}

func waitingRecords(n int) string {
	if n >= roles.MaxWaiting {
		return fmt.Sprintf("%d records or more", n)
	}
	return count(n, "record")
}

// notDead refuses to repair a record that is not dead.
func notDead(r *outmill.Record) error {
	return fmt.Errorf("%w: the record %s is %s", roles.ErrNotDead, r.ID, r.Status)
}
