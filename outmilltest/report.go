package outmilltest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/outmill/outmill"
)

const (
	// listed is the number of messages that a failure shows.
	listed = 20
	// shown is the number of bytes of a payload that a failure shows.
	shown = 500
)

// report describes the messages that were published instead, each with its mismatch.
func (l look) report(want Matcher) string {
	if len(l.records) == 0 {
		if len(l.others) == 0 {
			return "; the store holds no message at all"
		}
		return "; there are messages in " + strings.Join(l.others, ", ")
	}
	var b strings.Builder
	b.WriteString("; published were:")
	for i, rec := range l.records {
		if i == listed {
			fmt.Fprintf(&b, "\n\t… and %d more", len(l.records)-listed)
			break
		}
		fmt.Fprintf(&b, "\n\t%d. %s", i+1, describe(rec))
		if mismatch := want(rec); mismatch != "" {
			fmt.Fprintf(&b, "\n\t   does not match: %s", mismatch)
		}
	}
	return b.String()
}

func describe(rec *outmill.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "message %q, %s", rec.MessageID, rec.Status)
	if rec.DueAt.After(rec.CreatedAt) {
		fmt.Fprintf(&b, ", due %s after it was published", rec.DueAt.Sub(rec.CreatedAt))
	}
	metadata := metadataOf(rec)
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		fmt.Fprintf(&b, ", %s=%q", name, metadata[name])
	}
	fmt.Fprintf(&b, ", payload %s", show(rec.Payload))
	return b.String()
}

// show returns text unchanged, other bytes quoted, and nil for a nil payload.
func show(payload []byte) string {
	if payload == nil {
		return "nil"
	}
	text, rest := string(payload), ""
	if len(payload) > shown {
		text, rest = string(payload[:runeBorder(payload)]), fmt.Sprintf("… (%d bytes)", len(payload))
	}
	if text == "" || !utf8.ValidString(text) || strings.ContainsFunc(text, unreadable) {
		text = strconv.Quote(text)
	}
	return text + rest
}

// runeBorder returns the last border between runes up to shown, if the payload is text.
func runeBorder(payload []byte) int {
	for end := shown; end > shown-utf8.UTFMax; end-- {
		if utf8.RuneStart(payload[end]) {
			return end
		}
	}
	return shown
}

func unreadable(r rune) bool { return !unicode.IsPrint(r) && !unicode.IsSpace(r) }

func topicsOf(ctx context.Context, store outmill.Inspector) ([]string, error) {
	stats, err := store.Stats(ctx, 1)
	if err != nil {
		return nil, err
	}
	topics := map[string]bool{}
	for _, s := range stats {
		topics[fmt.Sprintf("%q", s.Topic)] = true
	}
	return slices.Sorted(maps.Keys(topics)), nil
}
