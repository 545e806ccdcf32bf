package outmilltest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/outmill/outmill"
)

// patience limits the wait for a store that does not answer.
const patience = time.Minute

// RequirePublished ends the test unless exactly one message that matches was published to
// the topic, and returns its record. Without matchers the topic must have exactly one
// message. Messages that do not match may exist; if the test fails, they are shown with
// their payloads.
func RequirePublished(t testing.TB, store outmill.Inspector, topic string, want ...Matcher) *outmill.Record {
	t.Helper()
	look, ok := lookAt(t, store, topic)
	if !ok {
		return nil
	}
	matching := look.matching(All(want...))
	if len(matching) == 1 {
		return matching[0]
	}
	t.Fatalf("outmilltest: want exactly one such message in topic %q, got %d%s", topic, len(matching), look.report(All(want...)))
	return nil
}

// RequireManyPublished ends the test unless the topic has exactly one message for each
// matcher, in the order of the publishes, and each message matches its matcher. It returns
// their records. [All] combines several matchers into one; [Any] matches every message.
// Messages that were published at the same time, or by several processes, may have any
// order.
func RequireManyPublished(t testing.TB, store outmill.Inspector, topic string, want ...Matcher) []*outmill.Record {
	t.Helper()
	look, ok := lookAt(t, store, topic)
	if !ok {
		return nil
	}
	if len(look.records) != len(want) {
		t.Fatalf("outmilltest: want %d messages in topic %q, got %d%s", len(want), topic, len(look.records), look.report(Any()))
		return nil
	}
	for i, rec := range look.records {
		if mismatch := All(want[i])(rec); mismatch != "" {
			t.Fatalf("outmilltest: message %d of %d in topic %q: %s%s", i+1, len(want), topic, mismatch, look.report(Any()))
			return nil
		}
	}
	return look.records
}

// RequireNotPublished ends the test if a message that matches was published to the topic.
// Without matchers the topic must have no message at all.
func RequireNotPublished(t testing.TB, store outmill.Inspector, topic string, want ...Matcher) {
	t.Helper()
	look, ok := lookAt(t, store, topic)
	if !ok {
		return
	}
	if n := len(look.matching(All(want...))); n > 0 {
		t.Fatalf("outmilltest: want no such message in topic %q, got %d%s", topic, n, look.report(All(want...)))
	}
}

// look is the content of one topic in a store.
type look struct {
	records []*outmill.Record
	// others are the other topics with messages. They are read only if records is empty.
	others []string
}

// lookAt reads the topic's messages, each once. ok is false if Fatalf was called, for a
// testing.TB whose Fatalf returns.
func lookAt(t testing.TB, store outmill.Inspector, topic string) (found look, ok bool) {
	t.Helper()
	if outmill.IsNil(store) {
		t.Fatalf("outmilltest: the store is nil")
		return look{}, false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	records, err := listTopic(ctx, store, topic)
	if err != nil {
		t.Fatalf("outmilltest: list the messages of topic %q: %v", topic, err)
		return look{}, false
	}
	found.records = onePerMessage(records)
	if len(found.records) > 0 {
		return found, true
	}
	if found.others, err = topicsOf(ctx, store); err != nil {
		t.Fatalf("outmilltest: list the topics: %v", err)
		return look{}, false
	}
	return found, true
}

func listTopic(ctx context.Context, store outmill.Inspector, topic string) ([]*outmill.Record, error) {
	query := outmill.ListQuery{Topic: topic, Limit: 1000, Content: true}
	if topic == "" {
		return nil, fmt.Errorf("the topic is empty: name the one to look at")
	}
	var all []*outmill.Record
	for {
		page, err := store.List(ctx, query)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < query.Limit {
			return all, nil
		}
		query.After = page[len(page)-1].ID
	}
}

// onePerMessage returns one record of each message, also if the message reaches several
// groups. A message that was published twice has two records in each group, and both
// remain.
func onePerMessage(records []*outmill.Record) []*outmill.Record {
	type reader struct {
		group     string
		messageID string
	}
	type publication struct {
		messageID string
		nth       int
	}
	times := map[reader]int{}
	seen := map[publication]bool{}
	var messages []*outmill.Record
	for _, rec := range records {
		r := reader{rec.Group, rec.MessageID}
		times[r]++
		p := publication{rec.MessageID, times[r]}
		if !seen[p] {
			seen[p] = true
			messages = append(messages, rec)
		}
	}
	return messages
}

func (l look) matching(want Matcher) []*outmill.Record {
	var matching []*outmill.Record
	for _, rec := range l.records {
		if want(rec) == "" {
			matching = append(matching, rec)
		}
	}
	return matching
}
