package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/roles"
)

// examination has the flags of doctor.
type examination struct {
	target
	output
	to     string
	tasks  []string
	config monitor.DoctorConfig
}

func doctorCommand() *cobra.Command {
	e := &examination{}
	cmd := &cobra.Command{
		Use:   "doctor [URL | --source NAME]",
		Short: "Look for what keeps messages from being delivered",
		Long: `Looks for faults, and says for each what to do: a part of the schema or a right that is
missing, a session of the database that slows the others down, clocks that differ, a topic
or a group without a consumer, records that are late or dead, that cannot be read, that fail
again and again, or whose lease has ended and that nobody takes, and with --to a broker that
does not answer. docs/operations.md lists all kinds.

The rights are those of the user in the URL: run it with the URL of the program that is in
trouble. --task publish looks only for the rights of a publisher, --task read for those of
a subscriber or forwarder.

The command only reads, and its cost does not grow with the number of records.

Exit codes: 0 nothing found, 1 something found, 2 the store could not be checked, or wrong
usage.`,
		Example: "  outmill doctor postgres://host/shop --to kafka://localhost:9092\n  outmill doctor sqlite:orders.db --watch 10s",
	}
	e.target.flags(cmd)
	e.output.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&e.to, "to", "", "check that this `BROKER` answers, as outmill forward names it")
	flags.StringArrayVar(&e.tasks, "task", nil, "check the rights for this `TASK`: publish or read; may be repeated (default both)")
	flags.DurationVar(&e.config.MaxAge, "max-age", 5*time.Minute, "the `TIME` that a record may be due")
	flags.DurationVar(&e.config.MaxHandling, "max-handling", 5*time.Minute, "the `TIME` that a handler may run")
	flags.DurationVar(&e.config.EndedLease, "max-ended-lease", 2*time.Minute, "the `TIME` after its end that a lease may have no successor")
	flags.DurationVar(&e.config.OpenTransaction, "max-transaction", 5*time.Minute, "the `TIME` that a transaction of the database may be open")
	flags.DurationVar(&e.config.LockWait, "max-lock-wait", 5*time.Second, "the `TIME` that a session may wait for a lock")
	flags.DurationVar(&e.config.ClockDifference, "max-clock-difference", time.Second, "the `TIME` by which the clocks may differ")
	flags.DurationVar(&e.config.Watch, "watch", 0, "count the dead records again after this `TIME`, to see whether they rise")
	flags.DurationVar(&e.config.Timeout, "timeout", 30*time.Second, "the `TIME` that the checks may take")
	_ = cmd.RegisterFlagCompletionFunc("task", cobra.FixedCompletions([]string{"publish", "read"}, cobra.ShellCompDirectiveNoFileComp))
	return does(cmd, func(ctx context.Context, args []string) error {
		report, asJSON, store, err := e.examine(ctx, args)
		if err != nil {
			return exitError{exitUsage, err}
		}
		if asJSON {
			err = printJSON(cmd.OutOrStdout(), report)
		} else {
			err = printReport(cmd.OutOrStdout(), store, report)
		}
		if err == nil && len(report.Problems) > 0 {
			err = exitError{code: exitFailed}
		}
		return err
	})
}

func (e *examination) examine(ctx context.Context, args []string) (report monitor.Report, asJSON bool, store opened, err error) {
	url, _, err := e.take(args)
	if err != nil {
		return report, false, store, err
	}
	if asJSON, err = e.json(); err != nil {
		return report, false, store, err
	}
	for _, task := range e.tasks {
		if task != string(roles.TaskPublish) && task != string(roles.TaskRead) {
			return report, false, store, usagef("--task is %q: want publish or read", task)
		}
		e.config.Tasks = append(e.config.Tasks, roles.Task(task))
	}
	// Only the opening is bounded here. Doctor bounds its checks by itself, and reports what it has found when their time is over.
	opening, cancel := context.WithTimeout(ctx, e.config.Timeout)
	defer cancel()
	if e.to != "" {
		broker, err := openDestination(e.to, nil)
		if err != nil {
			return report, false, store, err
		}
		defer func() { _ = broker.close() }()
		e.config.Broker = broker.ping
	}
	err = e.with(opening, url, func(examined opened) error {
		store = examined
		e.config.Name = store.Name()
		report, err = monitor.Doctor(ctx, store.Store, e.config)
		return err
	})
	// The report names the tenants that could not be opened.
	if left := new(leftOutError); errors.As(err, left) && report.Status != "" {
		err = nil
	}
	return report, asJSON, store, err
}

func printReport(w io.Writer, store opened, report monitor.Report) error {
	var b strings.Builder
	failures := 0
	for _, p := range report.Problems {
		if p.Severity == monitor.Failure {
			failures++
		}
	}
	switch {
	case len(report.Problems) == 0:
		fmt.Fprintf(&b, "%s %s fine.\n", store.shown, store.verb("is", "are"))
	default:
		fmt.Fprintf(&b, "%s %s %s and %s.\n", store.shown, store.verb("has", "have"),
			count(failures, "failure"), count(len(report.Problems)-failures, "warning"))
	}
	for _, p := range report.Problems {
		fmt.Fprintf(&b, "\n%s: %s", p.Severity, p.Kind)
		for _, part := range []struct{ name, text string }{{"store ", p.Store}, {"", p.Subject}} {
			if part.text != "" {
				fmt.Fprintf(&b, ", %s%s", part.name, oneLine(part.text, 120))
			}
		}
		if !p.Since.IsZero() {
			fmt.Fprintf(&b, ", since %s", stamp(p.Since))
		}
		fmt.Fprintf(&b, "\n  %s\n  %s\n", oneLine(p.Text, 0), oneLine(p.Remedy, 0))
	}
	if len(report.Unchecked) > 0 {
		b.WriteString("\nNot checked:\n")
		for _, text := range report.Unchecked {
			b.WriteString("  " + oneLine(text, 0) + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
