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
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

func listCommand(term terminal) *cobra.Command {
	var by search
	cmd := &cobra.Command{
		Use:   "list [URL | --source NAME]",
		Short: "List records that match a filter",
		Long: `Lists records in the order of their ids, which is about the order in which they were
appended. All filters together must match.

Only leased, processed and dead records are found by an index (--status with --group
and --topic); every other filter looks at each record, 10,000 at a time, and shows on
a terminal how far it came. --after continues a list behind its last record.`,
		Example: `  outmill list sqlite:orders.db --status dead --topic orders
  outmill list postgres://host/shop --error 'connection refused' --newer-than 1h
  outmill list postgres://host/shop --correlation-id 7f0c2 -o json --payload`,
	}
	by.flags(cmd, true)
	return by.does(cmd, func(ctx context.Context, store opened, query outmill.ListQuery, asJSON bool) error {
		operator, err := store.repairs()
		if err != nil {
			return err
		}
		query.Content = asJSON || by.payload
		found, err := findUpTo(ctx, operator, query, by.limit, newProgress(term.err, "looked at", 0))
		return showing(err, func() error {
			if asJSON {
				report := listJSON(found, by.payload)
				report.Done = report.Done && err == nil
				return printJSON(cmd.OutOrStdout(), report)
			}
			return printList(cmd.OutOrStdout(), term, found, by.payload)
		})
	})
}

// finding is the result of several pages.
type finding struct {
	records []*outmill.Record
	// next continues the search; done says that nothing is left.
	next outmill.WorkItemID
	done bool
}

// findUpTo turns pages until it has limit records, or nothing is left. If some of several stores fail, it
// returns the records of the others and the last error.
func findUpTo(
	ctx context.Context, operator roles.Repairs, query outmill.ListQuery, limit int, progress *progress,
) (found finding, err error) {
	defer progress.end()
	found.next = query.After
	examined := 0
	for !found.done && len(found.records) < limit {
		query.After, query.Limit = found.next, min(limit-len(found.records), 1000)
		began := time.Now()
		page, pageErr := operator.Find(ctx, query)
		err = cmp.Or(pageErr, err)
		found.records = append(found.records, page.Records...)
		if endsWork(pageErr, began) {
			return found, err
		}
		found.next, found.done = page.Next, page.Done
		examined += page.Examined
		progress.show(examined)
	}
	return found, err
}

// slowFailure is how long a call takes that some of several stores have failed by not answering.
const slowFailure = 3 * time.Second

// endsWork reports whether a call that began then ends work in several calls: it failed in each of the
// stores, or took so long to fail in some that each further call would take as long.
func endsWork(err error, began time.Time) bool {
	return storekit.NoneAnswered(err) || err != nil && time.Since(began) > slowFailure
}

// showing shows a result, also one that lacks some of several stores, and returns the error.
func showing(err error, show func() error) error {
	if storekit.NoneAnswered(err) {
		return err
	}
	return errors.Join(show(), err)
}

type listReport struct {
	Records []recordView `json:"records"`
	// Next is for --after; Done says that nothing is left.
	Next string `json:"next,omitempty"`
	Done bool   `json:"done"`
}

func listJSON(found finding, payload bool) listReport {
	report := listReport{Records: []recordView{}, Done: found.done}
	for _, r := range found.records {
		report.Records = append(report.Records, viewOf(r, payload))
	}
	if !found.done {
		report.Next = found.next.String()
	}
	return report
}

func printList(w io.Writer, term terminal, found finding, payload bool) error {
	if len(found.records) == 0 {
		_, err := fmt.Fprintln(w, "No record matches.")
		return err
	}
	t := table{
		header: []string{"ID", "GROUP", "TOPIC", "KEY", "STATUS", "AGE", "ATTEMPTS", "ERROR"},
		right:  map[string]bool{"AGE": true, "ATTEMPTS": true},
		bold:   term.colours(),
	}
	if payload {
		t.header = append(t.header, "PAYLOAD")
	}
	t.withStores(slices.ContainsFunc(found.records, func(r *outmill.Record) bool { return r.Store != "" }))
	for _, r := range found.records {
		cells := []string{
			r.ID.String(), orDash(oneLine(r.Group, 40)), oneLine(r.Topic, 40), orDash(oneLine(r.Key, 40)), string(r.Status),
			age(time.Since(r.CreatedAt)), strconv.Itoa(r.Attempts), orDash(listedError(r)),
		}
		if payload {
			cells = append(cells, payloadCell(r.Payload))
		}
		t.addOf(r.Store, cells...)
	}
	if err := t.print(w); err != nil {
		return err
	}
	if !found.done {
		fmt.Fprintf(term.err, "There may be more: --after %s continues the list.\n", found.next)
	}
	return nil
}

// listedError is the error of a record in a table, or what of the record cannot be read.
func listedError(r *outmill.Record) string {
	text := oneLine(r.LastError, 60)
	if r.Unreadable != "" && !storekit.Undeliverable(r.LastError) {
		return oneLine("cannot be read: "+r.Unreadable, 60)
	}
	if storekit.ErrorIsEarlier(r) {
		return "(earlier) " + text
	}
	return text
}
