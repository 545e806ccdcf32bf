package allstores

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/janitor"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
	"github.com/outmill/outmill/tenants"
)

// plant is a store, or a set of stores, that can be locked.
type plant struct {
	outmill.Store
	log watermill.LoggerAdapter
	on  *paper
	// files are the databases by the names of their stores.
	files map[string]string
	// member is the store with the records of the test, and writer writes them, however long others
	// write.
	member string
	writer *publisher.Publisher
}

// newPlant makes one store, or a set of two.
func newPlant(t *testing.T, names ...string) *plant {
	t.Helper()
	on := newPaper()
	p := &plant{log: on.logger(), on: on, files: map[string]string{}, member: names[0]}
	var list tenants.Static
	for _, name := range names {
		p.files[name] = filepath.Join(t.TempDir(), "outbox.db")
		store, err := sqlite.Open(t.Context(), p.files[name], sqlite.Config{Name: name, BusyTimeout: time.Millisecond}, p.log)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		require.NoError(t, store.Ensure(t.Context()))
		list = append(list, tenants.Tenant{Key: name, Store: store})
		p.Store = store
	}
	writing, err := sqlite.Open(t.Context(), p.files[p.member], sqlite.Config{BusyTimeout: patience}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, writing.Close()) })
	p.writer, err = publisher.New(writing, publisher.Config{}, nil)
	require.NoError(t, err)
	if len(names) == 1 {
		return p
	}
	set, err := tenants.New(t.Context(), tenants.Config{Name: "fleet", Discovery: list}, p.log)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Close()) })
	p.Store = set
	return p
}

// plants are those of each test.
var plants = map[string][]string{"a store": {"shop"}, "a set": {"ada", "bob"}}

func eachPlant(t *testing.T, test func(t *testing.T, p *plant)) {
	t.Helper()
	for name, stores := range plants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlant(t, stores...)
			test(t, p)
			p.requireNamed(t)
		})
	}
}

// requireNamed requires that each line has the name of a store, and no field twice.
func (p *plant) requireNamed(t *testing.T) {
	t.Helper()
	all := p.on.lines(t, "")
	require.NotEmpty(t, all)
	for _, line := range all {
		name, _ := line["store"].(string)
		require.True(t, name == p.Name() || p.files[name] != "", "%v", line)
	}
}

// isSet reports whether the plant has members of other names than its own.
func (p *plant) isSet() bool { return len(p.files) > 1 }

// lock has all writes to these stores fail until unlock.
func (p *plant) lock(t *testing.T, names ...string) (unlock func()) {
	t.Helper()
	var undo []func()
	for _, name := range names {
		db, err := sql.Open("sqlite", p.files[name]+"?_pragma=busy_timeout(60000)")
		require.NoError(t, err)
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
		require.NoError(t, err)
		undo = append(undo, func() {
			require.NoError(t, conn.Close())
			require.NoError(t, db.Close())
		})
	}
	return func() {
		for _, end := range undo {
			end()
		}
	}
}

func (p *plant) lockAll(t *testing.T) (unlock func()) {
	t.Helper()
	return p.lock(t, slices.Sorted(maps.Keys(p.files))...)
}

// await waits for a line of the message that has the store's name.
func (p *plant) await(t *testing.T, store, msg string) {
	t.Helper()
	late := time.After(patience)
	for {
		wrote := p.on.nextLine()
		if slices.ContainsFunc(p.on.lines(t, msg), func(line map[string]any) bool { return line["store"] == store }) {
			return
		}
		select {
		case <-wrote:
		case <-late:
			require.FailNow(t, "no such line", "%s: %s: %v", store, msg, p.on.lines(t, msg))
		}
	}
}

// awaitMember waits for the lines about a member: of records that no group reads, and, in a set, of a
// member that fails alone.
func (p *plant) awaitMember(t *testing.T) {
	t.Helper()
	p.publish(t, "unread", "m0")
	p.await(t, p.member,
		"Warning: records are due that no group has registered for; subscribe to the topic, forward it, or stop publishing to it")
	if !p.isSet() {
		return
	}
	unlock := p.lock(t, p.member)
	defer unlock()
	p.await(t, p.member, "Claim failed in a member, the others go on")
	p.await(t, p.member, "A call failed in a member, the others go on")
}

func (p *plant) publish(t *testing.T, topic, id string) {
	t.Helper()
	require.NoError(t, p.writer.Publish(topic, message.NewMessage(id, nil)))
}

// OBX-071, OBX-107.
func TestLogs_Outage(t *testing.T) {
	t.Parallel()
	const again = 20 * time.Millisecond

	t.Run("each line of a subscriber has the name of one store, also while the store fails (OBX-071, OBX-107)", func(t *testing.T) {
		t.Parallel()
		eachPlant(t, func(t *testing.T, p *plant) {
			cfg := quick()
			cfg.Lease, cfg.MaxErrorBackoff, cfg.UpkeepInterval = time.Second, again, again
			sub, err := subscriber.New(p, cfg, p.log)
			require.NoError(t, err)
			messages := subscribe(t, sub)
			p.awaitMember(t)
			p.publish(t, topic, "m1")
			msg := next(t, messages)
			p.await(t, p.member, "Message delivered")
			unlock := p.lockAll(t)
			p.await(t, p.Name(), "Claim failed, will try again")
			p.await(t, p.member, "Leases could not be extended, will try again")
			p.await(t, p.Name(), "Upkeep of the registrations failed, will try again")
			p.await(t, p.Name(), "Upkeep of the store failed, will try again")
			p.await(t, p.member, "Lease lost; the record may be delivered to another worker")
			msg.Nack()
			unlock()
			next(t, messages).Nack()
			p.await(t, p.member, "Handling failed")
			msg = next(t, messages)
			unlock = p.lockAll(t)
			msg.Ack()
			p.await(t, p.member, "Outcomes could not be stored, will try again")
			unlock()
			require.NoError(t, sub.Close())
		})
	})

	t.Run("each line of a forwarder has the name of one store, also while the store fails", func(t *testing.T) {
		t.Parallel()
		eachPlant(t, func(t *testing.T, p *plant) {
			arrived, locked := make(chan struct{}), make(chan struct{})
			var once sync.Once
			broker := broker(func(msg *message.Message) (err error) {
				once.Do(func() {
					close(arrived)
					<-locked
					err = errors.New("away")
				})
				if msg.UUID == "m2" {
					err = outmill.Permanent(errors.New("too large"))
				}
				return err
			})
			fwd, err := forwarder.New(p, broker, forwarder.Config{
				Topics: outmill.Topics{Include: []string{topic}}, PollInterval: again, MaxErrorBackoff: again, UpkeepInterval: again,
			}, p.log)
			require.NoError(t, err)
			ended := make(chan error, 1)
			go func() { ended <- fwd.Run(context.Background()) }()
			<-fwd.Running()
			p.await(t, p.Name(), "The forwarder publishes one message at a time in each of its lanes")
			p.awaitMember(t)
			p.publish(t, topic, "m1")
			<-arrived
			unlock := p.lockAll(t)
			close(locked)
			for _, msg := range []string{
				"The broker accepted no message; forwarding pauses, then probes with one record. No attempt is counted. " +
					"Check that the broker is up and its address right",
				"The forwarder could not report its problems to the store, will try again with the next registration",
				"Upkeep of the registrations failed, will try again", "Upkeep of the store failed, will try again",
			} {
				p.await(t, p.Name(), msg)
			}
			p.await(t, p.member, "Outcomes could not be stored, will try again")
			unlock()
			p.await(t, p.Name(), "The broker accepts messages again")
			p.publish(t, topic, "m2")
			p.await(t, p.member, "Message could not be forwarded")
			require.NoError(t, fwd.Close())
			require.NoError(t, <-ended)
		})
	})

	t.Run("each line of a janitor has the name of one store, also while the store fails", func(t *testing.T) {
		t.Parallel()
		eachPlant(t, func(t *testing.T, p *plant) {
			tidy, err := janitor.New(p, janitor.Config{Interval: again}, p.log)
			require.NoError(t, err)
			ended := make(chan error, 1)
			go func() { ended <- tidy.Run(context.Background()) }()
			msg := message.NewMessage("m1", nil)
			outmill.SetTimeToLive(msg, time.Millisecond)
			require.NoError(t, p.writer.Publish(topic, msg))
			p.await(t, p.Name(), "Records expired and are dead")
			p.await(t, p.Name(), "The janitor's round has ended")
			if p.isSet() {
				unlock := p.lock(t, p.member)
				p.await(t, p.member, "A call failed in a member, the others go on")
				unlock()
			}
			unlock := p.lockAll(t)
			p.await(t, p.Name(), "Upkeep of the store failed, will try again")
			unlock()
			require.NoError(t, tidy.Close())
			require.NoError(t, <-ended)
		})
	})
}

// broker is a publisher that takes the messages for which it returns nil.
type broker func(msg *message.Message) error

func (b broker) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		if err := b(msg); err != nil {
			return err
		}
	}
	return nil
}
func (broker) Close() error { return nil }
