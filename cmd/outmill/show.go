package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func showCommand() *cobra.Command {
	var on target
	var out output
	var payload bool
	cmd := &cobra.Command{
		Use:   "show [URL | --source NAME] ID",
		Short: "Show one record with all its fields",
		Long: "Shows the record with this id, what of it the store cannot read, and its last attempts. The payload is shown only\n" +
			"with --payload.",
		Example: "  outmill show sqlite:orders.db 01890a5d-ac96-774b-bcce-b302099a8057 --payload",
	}
	on.flags(cmd)
	out.flags(cmd)
	cmd.Flags().BoolVar(&payload, "payload", false, "show the payload")
	return does(cmd, func(ctx context.Context, args []string) error {
		url, ids, err := on.takeIDs(args)
		if err != nil {
			return err
		}
		if len(ids) != 1 {
			return notOneID(ids)
		}
		asJSON, err := out.json()
		if err != nil {
			return err
		}
		return on.with(ctx, url, func(store opened) error {
			record, err := store.get(ctx, ids[0])
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), viewOfOne(record, payload))
			}
			return printRecord(cmd.OutOrStdout(), record, payload)
		})
	})
}

// notOneID refuses ids where a command takes the id of one record.
func notOneID(ids []outmill.WorkItemID) error {
	return usagef("want the id of one record, as outmill list shows it; got %s", count(len(ids), "id"))
}

// takeIDs returns the URL and the ids of records. The first argument is the URL unless it is
// an id.
func (t *target) takeIDs(args []string) (url string, ids []outmill.WorkItemID, err error) {
	if len(args) > 0 {
		if _, err := outmill.ParseWorkItemID(args[0]); err != nil {
			if t.source != "" {
				return "", nil, usagef("--source takes the URL from the environment: want only ids of records, and %.60q is none",
					outmill.RedactURL(args[0]))
			}
			url, args = args[0], args[1:]
		}
	}
	if err := t.read(url != "" || t.source != ""); err != nil {
		return "", nil, err
	}
	for _, arg := range args {
		id, err := outmill.ParseWorkItemID(arg)
		if err != nil {
			return "", nil, usagef("%.60q is no id of a record: want a UUID as outmill list shows it", arg)
		}
		ids = append(ids, id)
	}
	return url, ids, nil
}

func printRecord(w io.Writer, r *outmill.Record, payload bool) error {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-16s %s\n", name, oneLine(value, 0))
		}
	}
	at := func(name string, t time.Time) { line(name, stamp(t)) }
	line("id", r.ID.String())
	line("message id", r.MessageID)
	line("store", r.Store)
	line("group", orDash(r.Group))
	line("topic", r.Topic)
	line("key", r.Key)
	line("status", string(r.Status))
	at("created", r.CreatedAt)
	at("due", r.DueAt)
	at("next attempt", r.NextAttemptAt)
	at("expires", r.ExpiresAt)
	at("lease until", r.LeaseUntil)
	if !r.Owner.IsZero() {
		line("owner", r.Owner.String())
	}
	line("worker", r.Worker)
	line("attempts", strconv.Itoa(r.Attempts))
	line("claims", strconv.Itoa(r.Claims))
	line("expired leases", strconv.Itoa(r.Expiries))
	line("last error", lastError(r))
	line("unreadable", r.Unreadable)
	for _, a := range r.History {
		line("attempt", attemptLine(a))
	}
	at("processed", r.ProcessedAt)
	line("processed by", r.ProcessedBy)
	line("correlation id", r.CorrelationID)
	line("causation id", r.CausationID)
	line("tenant", r.TenantID)
	line("traceparent", r.TraceParent)
	line("dedup key", r.DedupKey)
	var names []string
	for name := range r.Metadata {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		line("metadata", name+"="+r.Metadata[name])
	}
	if r.Payload == nil && r.Unreadable != "" {
		line("payload", "none that can be read")
	} else {
		line("payload", payloadSize(r.Payload))
	}
	line("fingerprint", storekit.FingerprintOf(r))
	if payload {
		b.WriteString("\n" + printable(r.Payload) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// attemptLine is an attempt as one line.
func attemptLine(a outmill.Attempt) string {
	text := strings.TrimSpace(a.At.Format(time.RFC3339) + " " + oneLine(a.Worker, 0))
	if a.Error != "" {
		text += ": " + oneLine(a.Error, 256)
	}
	return text
}

// lastError marks an error that does not say why the record waits now.
func lastError(r *outmill.Record) string {
	if storekit.ErrorIsEarlier(r) {
		return r.LastError + " (from before a requeue or a skip brought the record back)"
	}
	return r.LastError
}

// printable returns a payload for a terminal: other bytes than text are quoted, so that they
// cannot control the terminal.
func printable(payload []byte) string {
	text := string(payload)
	for _, r := range text {
		if !strconv.IsPrint(r) && r != '\n' && r != '\t' {
			return strconv.Quote(text)
		}
	}
	return text
}
