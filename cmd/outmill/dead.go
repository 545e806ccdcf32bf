package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

func deadCommand(term terminal) *cobra.Command {
	var by search
	cmd := &cobra.Command{
		Use:   "dead [URL | --source NAME]",
		Short: "List dead records by key, and what waits behind them",
		Long: `Lists the dead records that need a decision: the first one of each parked key, with the
number of records that wait behind it, and dead records that nobody waits for. For each
of them, outmill requeue makes it due again, as it is or after outmill edit, and outmill
skip deletes it; both bring back the records behind it, in order.

1000+ means that many records or more. --after continues a list behind its last record.`,
		Example: `  outmill dead sqlite:orders.db --topic orders
  outmill dead postgres://host/shop --error timeout -o json`,
	}
	by.flags(cmd, false)
	return by.does(cmd, func(ctx context.Context, store opened, query outmill.ListQuery, asJSON bool) error {
		bench, err := store.repairs()
		if err != nil {
			return err
		}
		query.Content = asJSON || by.payload
		found, err := lettersUpTo(ctx, bench, query, by.limit, newProgress(term.err, "looked at", 0))
		return showing(err, func() error {
			if asJSON {
				report := deadJSON(found, by.payload)
				report.Done = report.Done && err == nil
				return printJSON(cmd.OutOrStdout(), report)
			}
			return printDead(cmd.OutOrStdout(), term, found, by.payload)
		})
	})
}

// lettersUpTo turns pages until it has limit dead letters, or nothing is left. If some of several stores fail,
// it returns the letters of the others and the last error.
func lettersUpTo(
	ctx context.Context, bench roles.Repairs, query outmill.ListQuery, limit int, progress *progress,
) (found roles.DeadPage, err error) {
	defer progress.end()
	found.Next = query.After
	for !found.Done && len(found.Letters) < limit {
		query.After, query.Limit = found.Next, min(limit-len(found.Letters), 1000)
		began := time.Now()
		page, pageErr := bench.DeadLetters(ctx, query)
		err = cmp.Or(pageErr, err)
		found.Letters = append(found.Letters, page.Letters...)
		if endsWork(pageErr, began) {
			return found, err
		}
		found.Next, found.Done = page.Next, page.Done
		found.Examined += page.Examined
		progress.show(found.Examined)
	}
	return found, err
}

type deadReport struct {
	Letters []letterView `json:"dead"`
	// Next is for --after; Done says that nothing is left.
	Next string `json:"next,omitempty"`
	Done bool   `json:"done"`
}

// letterView is a dead letter as JSON.
type letterView struct {
	recordView
	// Waiting is how many records wait behind it; roles.MaxWaiting means that many or more.
	Waiting int `json:"waiting"`
}

func deadJSON(found roles.DeadPage, payload bool) deadReport {
	report := deadReport{Letters: []letterView{}, Done: found.Done}
	for _, l := range found.Letters {
		report.Letters = append(report.Letters, letterView{viewOf(l.Record, payload), l.Waiting})
	}
	if !found.Done {
		report.Next = found.Next.String()
	}
	return report
}

func printDead(w io.Writer, term terminal, found roles.DeadPage, payload bool) error {
	if len(found.Letters) == 0 {
		_, err := fmt.Fprintln(w, "No dead record matches.")
		return err
	}
	t := table{
		header: []string{"ID", "GROUP", "TOPIC", "KEY", "AGE", "ATTEMPTS", "WAITING", "ERROR"},
		right:  map[string]bool{"AGE": true, "ATTEMPTS": true, "WAITING": true},
		bold:   term.colours(),
	}
	if payload {
		t.header = append(t.header, "PAYLOAD")
	}
	t.withStores(slices.ContainsFunc(found.Letters, func(l roles.DeadLetter) bool { return l.Record.Store != "" }))
	for _, l := range found.Letters {
		r := l.Record
		cells := []string{
			r.ID.String(), orDash(oneLine(r.Group, 40)), oneLine(r.Topic, 40), orDash(oneLine(r.Key, 40)),
			age(time.Since(r.CreatedAt)), strconv.Itoa(r.Attempts), waitingText(l.Waiting), orDash(listedError(r)),
		}
		if payload {
			cells = append(cells, payloadCell(r.Payload))
		}
		t.addOf(r.Store, cells...)
	}
	if err := t.print(w); err != nil {
		return err
	}
	if !found.Done {
		fmt.Fprintf(term.err, "There may be more: --after %s continues the list.\n", found.Next)
	}
	return nil
}

func waitingText(n int) string {
	if n >= roles.MaxWaiting {
		return strconv.Itoa(n) + "+"
	}
	return strconv.Itoa(n)
}
