package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/monitor"
)

func whyCommand() *cobra.Command {
	var on target
	var out output
	var limit int
	var topic, dedupKey string
	cmd := &cobra.Command{
		Use:   "why [URL | --source NAME] {ID | --topic TOPIC --dedup-key KEY}",
		Short: "Explain where a message is and what it waits for",
		Long: `Explains where a message is and what it waits for: a claim, the end of a lease, a retry,
an earlier record of its key, a requeue, a group, a join, or the end of a pause. It names
what of a record cannot be read, and its last attempts, where the store keeps them. ID is the
id of a record, as outmill list shows it, or the id of a message, which has a record for
each group. The command only reads, and shows no payload.

No index finds a message id, so the search looks at --examine records at most and says
where it ended. If nothing has the id, the command says so and its exit code is 1.

A message whose dedup key was seen before leaves no record. Ask with its topic and its dedup
key: the answer names the record that took the key, and explains that record.`,
		Example: `  outmill why sqlite:orders.db 01890a5d-ac96-774b-bcce-b302099a8057
  outmill why sqlite:orders.db --topic orders --dedup-key order-4711-paid`,
	}
	on.flags(cmd)
	out.flags(cmd)
	cmd.Flags().StringVar(&topic, "topic", "", "the `TOPIC` of --dedup-key")
	cmd.Flags().StringVar(&dedupKey, "dedup-key", "", "ask which record took this dedup `KEY`, instead of an ID")
	cmd.Flags().IntVar(&limit, "examine", 100_000, "the `NUMBER` of records that a search for a message id looks at")
	return does(cmd, func(ctx context.Context, args []string) error {
		want := []string{"the ID of a record or a message"}
		if dedupKey != "" {
			want = nil
		}
		if (topic == "") != (dedupKey == "") {
			return usagef("--topic and --dedup-key go together: want both, or an ID")
		}
		url, rest, err := on.take(args, want...)
		if err != nil {
			return err
		}
		if limit < 1 {
			return usagef("--examine is %d: want 1 or more", limit)
		}
		asJSON, err := out.json()
		if err != nil {
			return err
		}
		return on.with(ctx, url, func(store opened) error {
			answer, err := explain(ctx, store, rest, topic, dedupKey, monitor.WhyConfig{MaxExamined: limit})
			return showing(err, func() error {
				show := printAnswer
				if asJSON {
					show = func(w io.Writer, answer monitor.Answer) error { return printJSON(w, answer) }
				}
				if err := show(cmd.OutOrStdout(), answer); err != nil {
					return err
				}
				if len(answer.Explanations) == 0 {
					return fmt.Errorf("outmill: no record was found for %q", answer.ID)
				}
				return nil
			})
		})
	})
}

// explain asks about the id, or about the dedup key if there is one.
func explain(ctx context.Context, store opened, ids []string, topic, dedupKey string, config monitor.WhyConfig) (monitor.Answer, error) {
	if dedupKey != "" {
		return monitor.WhyDuplicate(ctx, store.Store, topic, dedupKey, config)
	}
	return monitor.Why(ctx, store.Store, ids[0], config)
}

func printAnswer(w io.Writer, answer monitor.Answer) error {
	var b strings.Builder
	b.WriteString(answer.Text + "\n")
	for _, e := range answer.Explanations {
		fmt.Fprintf(&b, "\nRecord %s of message %s, group %s, topic %s",
			e.Record, oneLine(e.MessageID, 60), orDash(oneLine(e.Group, 60)), oneLine(e.Topic, 60))
		if e.Key != "" {
			b.WriteString(", key " + oneLine(e.Key, 60))
		}
		if e.Store != "" {
			b.WriteString(", store " + oneLine(e.Store, 60))
		}
		fmt.Fprintf(&b, " is %s.\n", e.Status)
		for _, reason := range e.Reasons {
			b.WriteString("  - " + reason.Text + "\n")
		}
		for i, a := range e.Attempts {
			if i == 0 {
				b.WriteString("  Its last attempts:\n")
			}
			b.WriteString("    " + attemptLine(outmill.Attempt(a)) + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
