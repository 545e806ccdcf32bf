//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sagas"
	"github.com/outmill/outmill/subscriber"
)

const (
	// books is the group whose handlers have an inbox, and tallies the group of the sagas.
	books   = "books"
	tallies = "tallies"
	// booked and counted are the topics of what their handlers publish. No group reads them, so all of it is there at
	// the end.
	booked  = "booked"
	counted = "counted"
	// effectOf is the header that names the message that was handled.
	effectOf = "chaos_effect_of"
)

// addEffects adds handlers whose transactions must happen once for each message, whatever is delivered how often.
func addEffects(router *message.Router, db database, topic string, logger watermill.LoggerAdapter) error {
	byInbox, err := subscriber.New(db.outbox(), reading(books, outmill.OrderNone), logger)
	if err != nil {
		return err
	}
	bySaga, err := subscriber.New(db.outbox(), reading(tallies, outmill.OrderKey), logger)
	if err != nil {
		return err
	}
	pub, err := publisher.New(db.outbox(), publisher.Config{RequireTx: true}, logger)
	if err != nil {
		return err
	}
	box, err := inbox.New(db.outbox(), inbox.Config{Consumer: books})
	if err != nil {
		return err
	}
	router.AddConsumerHandler(books, topic, byInbox, func(msg *message.Message) error {
		return moody(func() error {
			return pub.WithContext(msg.Context()).Publish(booked, effect(msg, msg.Payload))
		})
	}).AddMiddleware(box.Middleware)
	tally, err := sagas.Define(sagas.Config{Store: db.outbox(), Inbox: &inbox.Config{}, Marshaler: keyed{}},
		sagas.StartedBy(topic, func(account keyedMessage) string { return account.Key }, count))
	if err != nil {
		return err
	}
	return tally.AddHandlers(router, bySaga)
}

// count is the reaction of a saga, which has the number of the messages of its key.
func count(c *sagas.Context[tallied], _ keyedMessage) error {
	return moody(func() error {
		c.State.Messages++
		return c.Publish(counted, effect(c.Message, strconv.AppendInt(nil, int64(c.State.Messages), 10)))
	})
}

type tallied struct{ Messages int }

type keyedMessage struct{ Key string }

// keyed decodes the key of a message.
type keyed struct{}

func (keyed) Marshal(any) (*message.Message, error) { return nil, errors.New("no message is encoded") }

func (keyed) Unmarshal(msg *message.Message, v any) error {
	v.(*keyedMessage).Key = msg.Metadata.Get(outmill.MetadataKey)
	return nil
}

func (keyed) Name(any) string                         { return "" }
func (keyed) NameFromMessage(*message.Message) string { return "" }

// effect is what a handler publishes.
func effect(of *message.Message, payload []byte) *message.Message {
	msg := message.NewMessage(watermill.NewUUID(), payload)
	msg.Metadata.Set(effectOf, of.UUID)
	outmill.SetKey(msg, of.Metadata.Get(outmill.MetadataKey))
	return msg
}

// effects are the messages that handlers have published, by the message that they are of.
func effects(ctx context.Context, store outbox, topic string) (map[string][]*outmill.Record, error) {
	all := map[string][]*outmill.Record{}
	query := outmill.ListQuery{Content: true, Topic: topic, Limit: page}
	for {
		found, err := store.List(ctx, query)
		if err != nil || len(found) == 0 {
			return all, err
		}
		for _, r := range found {
			all[r.Metadata[effectOf]] = append(all[r.Metadata[effectOf]], r)
		}
		query.After = found[len(found)-1].ID
	}
}

// judgeEffects returns the faults of the effects: each message of the ledger must have one effect of each group, other
// messages must have none, and the sagas must have counted the messages of each key.
func judgeEffects(ledger map[string]entry, byInbox, bySaga map[string][]*outmill.Record) (faults []string) {
	for name, found := range map[string]map[string][]*outmill.Record{books: byInbox, tallies: bySaga} {
		for uuid, e := range ledger {
			if n := len(found[uuid]); n != 1 {
				faults = append(faults, fmt.Sprintf("%s: %s %d %s was handled %d times", name, e.key, e.n, uuid, n))
			}
		}
		for uuid := range found {
			if _, committed := ledger[uuid]; !committed {
				faults = append(faults, fmt.Sprintf("%s: %s is not in the ledger", name, uuid))
			}
		}
	}
	want, got := map[string]int{}, map[string][]int{}
	for _, e := range ledger {
		want[e.key]++
	}
	for _, records := range bySaga {
		for _, r := range records {
			n, _ := strconv.Atoi(string(r.Payload))
			got[r.Key] = append(got[r.Key], n)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(got)) {
		slices.Sort(got[key])
		for i, n := range got[key] {
			if n != i+1 || len(got[key]) != want[key] {
				faults = append(faults, fmt.Sprintf("%s: of %d messages of %s the saga has counted %d, and number %d as %d", tallies, want[key], key,
					len(got[key]), i+1, n))
				break
			}
		}
	}
	return faults
}

func TestEffects(t *testing.T) {
	t.Parallel()
	ledger := map[string]entry{"m1": {"k", 1}, "m2": {"k", 2}}
	of := func(payloads ...string) (records []*outmill.Record) {
		for _, p := range payloads {
			records = append(records, &outmill.Record{Key: "k", Payload: []byte(p)})
		}
		return records
	}
	good := func() map[string][]*outmill.Record { return map[string][]*outmill.Record{"m1": of("1"), "m2": of("2")} }
	require.Empty(t, judgeEffects(ledger, good(), good()))
	for name, spoil := range map[string]func(found map[string][]*outmill.Record){
		"a message was not handled":              func(found map[string][]*outmill.Record) { delete(found, "m2") },
		"a message was handled twice":            func(found map[string][]*outmill.Record) { found["m2"] = of("2", "3") },
		"a message was handled that was undone":  func(found map[string][]*outmill.Record) { found["m3"] = of("3") },
		"a saga has lost an update of its state": func(found map[string][]*outmill.Record) { found["m2"] = of("1") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spoiled := good()
			spoil(spoiled)
			require.NotEmpty(t, judgeEffects(ledger, good(), spoiled))
		})
	}
	missed := good()
	delete(missed, "m1")
	require.NotEmpty(t, judgeEffects(ledger, missed, good()), "of the inbox")
}
