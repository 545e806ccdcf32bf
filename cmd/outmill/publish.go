package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spf13/cobra"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// publishing has the flags of publish.
type publishing struct {
	target
	output
	in                                     io.Reader
	topic, key, messageID, correlationID   string
	tenant, dedupKey, payload, payloadFile string
	delay, ttl                             time.Duration
	metadata                               []string
	lines                                  bool
}

func publishCommand(term terminal) *cobra.Command {
	p := &publishing{in: term.in}
	p.tenantIsValue = true
	cmd := &cobra.Command{
		Use:   "publish [URL | --source NAME] --topic TOPIC",
		Short: "Append messages to a store",
		Long: `Appends a message with the payload of --payload, of a file, or of the standard input. With
--lines each line of the input becomes a message of its own, up to 100 in one
transaction.`,
		Example: `  outmill publish sqlite:orders.db --topic orders --key 7 --payload '{"id":7}'
  outmill publish sqlite:orders.db --topic orders --metadata name=order.placed < order.json
  outmill publish sqlite:orders.db --topic orders --lines < orders.ndjson`,
	}
	p.target.flags(cmd)
	p.output.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&p.topic, "topic", "", "the `TOPIC` of the messages (required)")
	flags.StringVar(&p.key, "key", "", "the `KEY` of the messages")
	flags.StringVar(&p.messageID, "message-id", "", "the `ID` of the message (default: a new UUID)")
	flags.StringVar(&p.correlationID, "correlation-id", "", "the `ID` of the conversation")
	flags.StringVar(&p.tenant, "tenant", "", "the `ID` of the tenant")
	flags.StringVar(&p.dedupKey, "dedup-key", "", "do nothing if a message of this `KEY` was published within the store's window")
	flags.DurationVar(&p.delay, "delay", 0, "postpone the delivery by this `TIME`")
	flags.DurationVar(&p.ttl, "ttl", 0, "make the record dead if it is not delivered within this `TIME`")
	flags.StringArrayVar(&p.metadata, "metadata", nil, "an entry of the metadata, as `NAME=VALUE`; may be repeated")
	flags.StringVar(&p.payload, "payload", "", "the payload as `TEXT`")
	flags.StringVar(&p.payloadFile, "payload-file", "", "take the payload from this `FILE`; - is the standard input")
	flags.BoolVar(&p.lines, "lines", false, "make a message of each line of the input")
	return does(cmd, func(ctx context.Context, args []string) error { return p.run(ctx, cmd, args) })
}

func (p *publishing) run(ctx context.Context, cmd *cobra.Command, args []string) error {
	url, _, err := p.take(args)
	if err != nil {
		return err
	}
	asJSON, err := p.json()
	if err != nil {
		return err
	}
	metadata, err := p.check(cmd)
	if err != nil {
		return err
	}
	if url == "" && p.source == "" && p.isSet() {
		return p.tenantMissing(ctx, "whose store gets the messages")
	}
	input, err := p.input(cmd)
	if err != nil {
		return err
	}
	defer input.Close()
	return p.with(ctx, url, func(store opened) error {
		// A million lines need no list unless it is printed.
		report := publishReport{listed: asJSON || !p.lines}
		err := p.append(ctx, store, metadata, input, &report)
		if err != nil {
			if report.Published > 0 {
				err = fmt.Errorf("%w\noutmill: %s published before that", err, count(report.Published, "message"))
			}
			return err
		}
		if asJSON {
			return printJSON(cmd.OutOrStdout(), report)
		}
		return report.print(cmd.OutOrStdout())
	})
}

func (p *publishing) check(cmd *cobra.Command) (message.Metadata, error) {
	metadata := message.Metadata{}
	for _, entry := range p.metadata {
		name, value, found := strings.Cut(entry, "=")
		if !found || name == "" {
			return nil, usagef("--metadata is %q: want NAME=VALUE", entry)
		}
		metadata.Set(name, value)
	}
	switch {
	case p.topic == "":
		return nil, usagef("--topic is missing: want the topic of the messages")
	case cmd.Flags().Changed("payload") && p.payloadFile != "":
		return nil, usagef("--payload and --payload-file are both given: want one of them")
	case p.lines && (cmd.Flags().Changed("payload") || p.messageID != "" || p.dedupKey != ""):
		return nil, usagef("--lines makes many messages: want it without --payload, --message-id and --dedup-key")
	case p.delay < 0:
		return nil, usagef("--delay is %s: want a time of 0 or more", p.delay)
	case p.ttl < 0:
		return nil, usagef("--ttl is %s: want a time above 0", p.ttl)
	}
	return metadata, nil
}

// input returns what the payloads are read from. The caller closes it.
func (p *publishing) input(cmd *cobra.Command) (io.ReadCloser, error) {
	switch {
	case cmd.Flags().Changed("payload"):
		return io.NopCloser(strings.NewReader(p.payload)), nil
	case p.payloadFile != "" && p.payloadFile != "-":
		file, err := os.Open(p.payloadFile)
		if err != nil {
			return nil, fmt.Errorf("outmill: --payload-file: %w", err)
		}
		return file, nil
	case isTerminal(p.in):
		return nil, usagef("want a payload: --payload TEXT, --payload-file FILE, or the standard input")
	default:
		return io.NopCloser(p.in), nil
	}
}

func (p *publishing) append(ctx context.Context, store opened, metadata message.Metadata, input io.Reader, report *publishReport) error {
	if !p.lines {
		payload, err := io.ReadAll(input)
		if err != nil {
			return fmt.Errorf("outmill: read the payload: %w", err)
		}
		return p.appendAll(ctx, store, metadata, [][]byte{payload}, report)
	}
	const atOnce = 100
	reader := bufio.NewReader(input)
	var payloads [][]byte
	for {
		line, err := reader.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("outmill: read the payloads: %w", err)
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			payloads = append(payloads, line)
		}
		if end := err != nil; len(payloads) == atOnce || end {
			if err := p.appendAll(ctx, store, metadata, payloads, report); err != nil || end {
				return err
			}
			payloads = nil
		}
	}
}

func (p *publishing) appendAll(
	ctx context.Context, store opened, metadata message.Metadata, payloads [][]byte, report *publishReport,
) error {
	records := make([]*outmill.Record, 0, len(payloads))
	for _, payload := range payloads {
		record, err := storekit.RecordOf(p.topic, p.message(metadata, payload))
		if err != nil {
			return err
		}
		records = append(records, record)
	}
	if err := store.Append(ctx, records...); err != nil {
		return err
	}
	for _, r := range records {
		report.add(r)
	}
	return nil
}

func (p *publishing) message(metadata message.Metadata, payload []byte) *message.Message {
	id := p.messageID
	if id == "" {
		id = watermill.NewUUID()
	}
	msg := message.NewMessage(id, payload)
	for name, value := range metadata {
		msg.Metadata.Set(name, value)
	}
	for _, set := range []struct {
		value string
		set   func(*message.Message, string)
	}{
		{p.key, outmill.SetKey}, {p.correlationID, outmill.SetCorrelationID}, {p.tenant, outmill.SetTenantID},
		{p.dedupKey, outmill.SetDedupKey},
	} {
		if set.value != "" {
			set.set(msg, set.value)
		}
	}
	if p.delay > 0 {
		outmill.SetDelay(msg, p.delay)
	}
	if p.ttl > 0 {
		outmill.SetTimeToLive(msg, p.ttl)
	}
	return msg
}

// publishReport is the result of publish.
type publishReport struct {
	Published  int             `json:"published"`
	Duplicates int             `json:"duplicates"`
	Messages   []publishedView `json:"messages"`

	// listed says that Messages is wanted.
	listed bool
}

type publishedView struct {
	ID        string   `json:"id,omitempty"`
	MessageID string   `json:"message_id"`
	Groups    []string `json:"groups,omitempty"`
	Duplicate bool     `json:"duplicate,omitempty"`
}

func (r *publishReport) add(record *outmill.Record) {
	view := publishedView{ID: record.ID.String(), MessageID: record.MessageID, Duplicate: record.Duplicate}
	if record.Duplicate {
		view.ID = ""
		r.Duplicates++
	} else {
		r.Published++
	}
	if !r.listed {
		return
	}
	if record.Group != "" {
		view.Groups = append(view.Groups, record.Group)
	}
	view.Groups = append(view.Groups, record.CopiedTo...)
	r.Messages = append(r.Messages, view)
}

func (r *publishReport) print(w io.Writer) error {
	var err error
	switch {
	case len(r.Messages) == 1 && r.Duplicates == 1:
		_, err = fmt.Fprintln(w, "Nothing was published: a message with this dedup key was published before.")
	case len(r.Messages) == 1 && len(r.Messages[0].Groups) == 0:
		_, err = fmt.Fprintf(w, "Published message %s as record %s. No group reads the topic yet, so the record waits for one.\n",
			r.Messages[0].MessageID, r.Messages[0].ID)
	case len(r.Messages) == 1:
		_, err = fmt.Fprintf(w, "Published message %s as record %s.\n", r.Messages[0].MessageID, r.Messages[0].ID)
	default:
		_, err = fmt.Fprintf(w, "Published %s.\n", count(r.Published, "message"))
	}
	return err
}
