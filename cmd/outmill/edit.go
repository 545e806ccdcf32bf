package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// maxPayloadFile is the largest file that edit reads; the stores have limits of their own.
const maxPayloadFile = 1 << 30

// fingerprint is the form of storekit.FingerprintOf.
var fingerprint = regexp.MustCompile(`^[0-9a-f]{32}-[0-9a-f]{32}$`)

// edit is the command that changes a dead record.
type edit struct {
	target
	output
	actor
	term    terminal
	file    string
	set     []string
	remove  []string
	seen    string
	requeue bool
	dryRun  bool
	payload bool
}

func editCommand(term terminal) *cobra.Command {
	e := &edit{term: term}
	cmd := &cobra.Command{
		Use:   "edit [URL | --source NAME] ID",
		Short: "Change the payload or the metadata of a dead record",
		Long: `Replaces the payload of a dead record by a file, or changes its metadata. The record stays
dead until outmill requeue, or with --requeue becomes due at once. The key, the times,
the dedup key, the tenant and the correlation id of a record do not change: publish a
new message instead, and skip the record.

With --seen the command changes the record only if its fingerprint is still the one that
outmill show printed. Without it, the command reads the record first, and fails if
somebody changes the record in between.`,
		Example: `  outmill show sqlite:orders.db 01890a5d-ac96-774b-bcce-b302099a8057 --payload
  outmill edit sqlite:orders.db 01890a5d-ac96-774b-bcce-b302099a8057 --payload-file fixed.json --requeue
  outmill edit sqlite:orders.db 01890a5d-ac96-774b-bcce-b302099a8057 --set version=2 --remove legacy`,
	}
	e.target.flags(cmd)
	e.output.flags(cmd)
	e.actor.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&e.file, "payload-file", "", "replace the payload by the content of this `FILE`; - is standard input")
	flags.StringArrayVar(&e.set, "set", nil, "set metadata: `NAME=VALUE`; may be given more than once")
	flags.StringArrayVar(&e.remove, "remove", nil, "remove the metadata with this `NAME`; may be given more than once")
	flags.StringVar(&e.seen, "seen", "", "only if the record still has this `FINGERPRINT`, which outmill show prints")
	flags.BoolVar(&e.requeue, "requeue", false, "requeue the record afterwards, with what is parked behind it")
	flags.BoolVar(&e.dryRun, "dry-run", false, "only show what the record would be")
	flags.BoolVar(&e.payload, "payload", false, "show the payload")
	return does(cmd, func(ctx context.Context, args []string) error { return e.run(ctx, cmd, args) })
}

// edited is the result as JSON.
type edited struct {
	Action   string     `json:"action"`
	Record   recordView `json:"record"`
	Requeued int        `json:"requeued"`
	DryRun   bool       `json:"dry_run"`
}

func (e *edit) run(ctx context.Context, cmd *cobra.Command, args []string) error {
	url, ids, err := e.takeIDs(args)
	if err != nil {
		return err
	}
	asJSON, err := e.json()
	if err != nil {
		return err
	}
	switch {
	case len(ids) != 1:
		return notOneID(ids)
	case e.file == "" && len(e.set) == 0 && len(e.remove) == 0:
		return usagef("nothing is to change: want --payload-file, --set or --remove")
	case e.seen != "" && !fingerprint.MatchString(e.seen):
		return usagef("--seen is %.80q: want the fingerprint of the record, as outmill show prints it", e.seen)
	}
	change := roles.Edit{Seen: e.seen}
	if change.Payload, err = e.readPayload(); err != nil {
		return err
	}
	return e.with(ctx, url, func(store opened) error {
		ctx := e.named(ctx)
		bench, err := store.repairs()
		if err != nil {
			return err
		}
		before, err := store.get(ctx, ids[0])
		if err != nil {
			return err
		}
		if before.Status != outmill.StatusDead {
			return notDead(before)
		}
		ctx = storekit.InStoreOf(ctx, store.Store, before)
		change.Seen = cmp.Or(change.Seen, storekit.FingerprintOf(before))
		if change.Metadata, err = e.metadata(before); err != nil {
			return err
		}
		result := edited{Action: "edit", DryRun: e.dryRun}
		after := preview(before, change)
		if !e.dryRun {
			after, err = bench.Edit(ctx, ids[0], change)
		}
		if err != nil {
			return err
		}
		if e.requeue && !e.dryRun {
			if result.Requeued, err = store.Requeue(ctx, ids[0]); err != nil {
				return fmt.Errorf("the record is edited, and still dead: %w", err)
			}
			if after, err = requeued(ctx, store, after); err != nil {
				return err
			}
		}
		if asJSON {
			result.Record = viewOfOne(after, e.payload)
			return printJSON(cmd.OutOrStdout(), result)
		}
		return e.report(cmd.OutOrStdout(), before, after, result)
	})
}

// requeued is the record as it is after its requeue. A worker may have handled it already; then it
// is shown as it was when it became due.
func requeued(ctx context.Context, store opened, edited *outmill.Record) (*outmill.Record, error) {
	now, err := store.Get(ctx, edited.ID)
	if errors.Is(err, outmill.ErrNotFound) {
		due := *edited
		due.Status, due.Attempts = outmill.StatusPending, 0
		return &due, nil
	}
	return now, err
}

// readPayload returns the content of the file; nil if there is none.
func (e *edit) readPayload() ([]byte, error) {
	if e.file == "" {
		return nil, nil
	}
	from := e.term.in
	if e.file != "-" {
		file, err := os.Open(e.file)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
		from = file
	}
	payload, err := io.ReadAll(io.LimitReader(from, maxPayloadFile+1))
	if err == nil && len(payload) > maxPayloadFile {
		err = fmt.Errorf("outmill: %s has more than %d bytes: no store takes such a payload", e.file, maxPayloadFile)
	}
	if payload == nil {
		payload = []byte{}
	}
	return payload, err
}

// metadata returns the record's metadata with the changes of the flags; nil if there are none.
func (e *edit) metadata(r *outmill.Record) (map[string]string, error) {
	if len(e.set) == 0 && len(e.remove) == 0 {
		return nil, nil
	}
	metadata := map[string]string{}
	maps.Copy(metadata, r.Metadata)
	for _, name := range e.remove {
		if _, has := metadata[name]; !has {
			return nil, usagef("--remove %s: the record has no metadata with that name", oneLine(name, 80))
		}
		delete(metadata, name)
	}
	for _, pair := range e.set {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, usagef("--set is %q: want NAME=VALUE", oneLine(pair, 80))
		}
		metadata[name] = value
	}
	return metadata, nil
}

// preview is the record as the edit would make it.
func preview(before *outmill.Record, change roles.Edit) *outmill.Record {
	after := *before
	if change.Payload != nil {
		after.Payload = change.Payload
	}
	if change.Metadata != nil {
		after.Metadata = change.Metadata
	}
	return &after
}

func (e *edit) report(w io.Writer, before, after *outmill.Record, result edited) error {
	if result.DryRun {
		if _, err := fmt.Fprintf(w, "The record would have a payload of %s (now %s) and %s of metadata (now %d).\n\n",
			payloadSize(after.Payload), payloadSize(before.Payload), count(len(after.Metadata), "name"), len(before.Metadata),
		); err != nil {
			return err
		}
		return printRecord(w, after, e.payload)
	}
	text := "The record is edited, and stays dead until it is requeued.\n"
	if e.requeue {
		text = fmt.Sprintf("The record is edited. %s requeued.\n", count(result.Requeued, "record"))
	}
	if _, err := io.WriteString(w, text+"\n"); err != nil {
		return err
	}
	return printRecord(w, after, e.payload)
}
