package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// filter has the flags that select records.
type filter struct {
	query        outmill.ListQuery
	status       string
	older, newer ageValue
	after        string
}

// statuses are the words of --status.
var statuses = []string{
	string(outmill.StatusPending), string(outmill.StatusLeased), string(outmill.StatusProcessed), string(outmill.StatusDead),
}

// flags declares the flags. A command that works on one status only has no --status.
func (f *filter) flags(cmd *cobra.Command, withStatus bool) {
	flags := cmd.Flags()
	flags.StringVar(&f.query.Group, "group", "", "only records of this `GROUP`")
	flags.StringVar(&f.query.Topic, "topic", "", "only records of this `TOPIC`")
	flags.StringVar(&f.query.Key, "key", "", "only records of this `KEY`")
	flags.StringVar(&f.query.MessageID, "message-id", "", "only the records of the message with this `ID`")
	flags.StringVar(&f.query.CorrelationID, "correlation-id", "", "only records of this conversation: the `ID` is the same for all")
	flags.StringVar(&f.query.TenantID, "tenant", "", "only records of this `TENANT`")
	flags.StringVar(&f.query.Contract, "contract", "",
		"only messages of the contract with this `NAME` (package contracts, or ce_type of a CloudEvent)")
	flags.IntVar(&f.query.ContractVersion, "contract-version", 0, "only messages in this `VERSION` of their contract")
	flags.StringVar(&f.query.ErrorText, "error", "", "only records whose last error contains this `TEXT`")
	flags.Var(&f.older, "older-than", "only records that are older than this `AGE`, such as 90m, 36h or 7d, by this machine's clock")
	flags.Var(&f.newer, "newer-than", "only records that are younger than this `AGE`, by this machine's clock")
	flags.StringVar(&f.after, "after", "", "only records behind this `ID`, in the order of ids")
	if withStatus {
		flags.StringVar(&f.status, "status", "", "only records of this `STATUS`: "+strings.Join(statuses, ", "))
		_ = cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(statuses, cobra.ShellCompDirectiveNoFileComp))
	}
}

// resolve returns the query of the flags.
func (f *filter) resolve() (outmill.ListQuery, error) {
	query := f.query
	if f.status != "" {
		status, err := outmill.ParseStatus(f.status)
		if err != nil {
			return query, usagef("--status is %q: want %s", f.status, strings.Join(statuses, ", "))
		}
		query.Status = status
	}
	if query.ContractVersion < 0 {
		return query, usagef("--contract-version is %d: want 1 or more", query.ContractVersion)
	}
	if f.after != "" {
		id, err := outmill.ParseWorkItemID(f.after)
		if err != nil {
			return query, usagef("--after is %q: want the id of a record", f.after)
		}
		query.After = id
	}
	now := time.Now()
	if f.older > 0 {
		query.CreatedBefore = now.Add(-time.Duration(f.older))
	}
	if f.newer > 0 {
		query.CreatedAfter = now.Add(-time.Duration(f.newer))
	}
	return query, nil
}

// selects reports whether a query selects some records and not all of them.
func selects(query outmill.ListQuery) bool {
	return query != outmill.ListQuery{After: query.After, Limit: query.Limit}
}

// describe says in words what a query selects: "dead records of topic orders".
func describe(query outmill.ListQuery) string {
	var b strings.Builder
	if query.Status != "" {
		b.WriteString(string(query.Status) + " ")
	}
	b.WriteString("records")
	for _, part := range []struct{ word, value string }{
		{"of topic", query.Topic}, {"of group", query.Group}, {"with key", query.Key}, {"of message", query.MessageID},
		{"with correlation id", query.CorrelationID}, {"of tenant", query.TenantID},
		{"of contract", query.Contract}, {"in version", storekit.VersionText(query.ContractVersion)},
	} {
		if part.value != "" {
			fmt.Fprintf(&b, " %s %s", part.word, oneLine(part.value, 80))
		}
	}
	if query.ErrorText != "" {
		fmt.Fprintf(&b, " whose error contains %q", oneLine(query.ErrorText, 80))
	}
	if !query.CreatedBefore.IsZero() {
		fmt.Fprintf(&b, " created before %s", stamp(query.CreatedBefore))
	}
	if !query.CreatedAfter.IsZero() {
		fmt.Fprintf(&b, " created since %s", stamp(query.CreatedAfter))
	}
	return b.String()
}

// ageValue is a flag with a duration that may be in days.
type ageValue time.Duration

func (a *ageValue) String() string {
	if *a == 0 {
		return ""
	}
	return time.Duration(*a).String()
}

func (a *ageValue) Type() string { return "age" }

func (a *ageValue) Set(text string) error {
	d, err := parseAge(text)
	if err != nil || d <= 0 {
		return fmt.Errorf("want an age above 0, such as 90m, 36h or 7d")
	}
	*a = ageValue(d)
	return nil
}

func parseAge(text string) (time.Duration, error) {
	if days, found := strings.CutSuffix(text, "d"); found {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}
