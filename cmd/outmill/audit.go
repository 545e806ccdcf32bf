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
)

func auditCommand(term terminal) *cobra.Command {
	var on target
	var out output
	var query roles.AuditQuery
	cmd := &cobra.Command{
		Use:   "audit [URL | --source NAME]",
		Short: "Show who requeued, deleted, edited or skipped records",
		Long: `Shows what operators changed, the newest first: who, when, which filter or record, how many
records, and what they were before and after. A command has one entry, with what it has
done until now; an interrupted one keeps it. The store keeps entries for 90 days, unless its configuration says
otherwise. Payloads are not in the audit: an edit shows fingerprints and sizes.`,
		Example: `  outmill audit sqlite:orders.db
  outmill audit postgres://host/shop --limit 1000 -o json`,
	}
	on.flags(cmd)
	out.flags(cmd)
	cmd.Flags().IntVar(&query.Limit, "limit", 100, "show this `NUMBER` of entries at most")
	cmd.Flags().StringVar(&query.After, "after", "", "continue behind this `PLACE`, which the command prints at the end of a page")
	return does(cmd, func(ctx context.Context, args []string) error {
		url, _, err := on.take(args)
		if err != nil {
			return err
		}
		asJSON, err := out.json()
		if err != nil {
			return err
		}
		if query.Limit < 1 {
			return usagef("--limit is %d: want 1 or more", query.Limit)
		}
		return on.with(ctx, url, func(store opened) error {
			audit, ok := outmill.As[roles.Repairs](store.Store)
			if !ok {
				return fmt.Errorf("outmill: the store %s has no audit: it lacks the role roles.Repairs", store.shown)
			}
			page, err := audit.Audited(ctx, query)
			return showing(err, func() error {
				if asJSON {
					return printJSON(cmd.OutOrStdout(), auditJSON(page))
				}
				return printAudit(cmd.OutOrStdout(), term, page)
			})
		})
	})
}

type auditReport struct {
	Entries []entryView `json:"entries"`
	// Next is for --after; Done says that nothing is left.
	Next string `json:"next,omitempty"`
	Done bool   `json:"done"`
}

// entryView is an entry as JSON.
type entryView struct {
	Number int64     `json:"number"`
	Store  string    `json:"store,omitempty"`
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action string    `json:"action"`
	Count  int       `json:"count"`
	roles.AuditDetails
}

func auditJSON(page roles.AuditPage) auditReport {
	report := auditReport{Entries: []entryView{}, Done: page.Done}
	for _, e := range page.Entries {
		report.Entries = append(report.Entries, entryView{e.Number, e.Store, e.At, e.Actor, string(e.Action), e.Count, e.AuditDetails})
	}
	if !page.Done {
		report.Next = page.Next
	}
	return report
}

func printAudit(w io.Writer, term terminal, page roles.AuditPage) error {
	if len(page.Entries) == 0 {
		_, err := fmt.Fprintln(w, "No operator has changed records.")
		return err
	}
	t := table{
		header: []string{"AT", "WHO", "ACTION", "RECORDS", "WHAT", "BEFORE", "AFTER"},
		right:  map[string]bool{"RECORDS": true}, bold: term.colours(),
	}
	t.withStores(slices.ContainsFunc(page.Entries, func(e roles.AuditEntry) bool { return e.Store != "" }))
	for _, e := range page.Entries {
		t.addOf(e.Store, stamp(e.At), orDash(oneLine(e.Actor, 40)), string(e.Action), strconv.Itoa(e.Count), orDash(oneLine(changedWhat(e), 120)),
			orDash(stateText(e.Before)), orDash(stateText(e.After)))
	}
	if err := t.print(w); err != nil {
		return err
	}
	if !page.Done {
		fmt.Fprintf(term.err, "There may be more: --after '%s' continues the list.\n", page.Next)
	}
	return nil
}

// changedWhat is the filter of an entry, or its first record.
func changedWhat(e roles.AuditEntry) string {
	if len(e.Filter) > 0 {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(e.Filter)) {
			parts = append(parts, name+"="+e.Filter[name])
		}
		return strings.Join(parts, " ")
	}
	switch len(e.IDs) {
	case 0:
		return ""
	case 1:
		return e.IDs[0].String()
	default:
		return fmt.Sprintf("%s and %d more", e.IDs[0], len(e.IDs)-1)
	}
}

func stateText(s roles.AuditState) string {
	if s.Fingerprint == "" {
		return s.Status
	}
	return fmt.Sprintf("%s, %s", s.Status, count(s.Size, "byte"))
}
