//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/subscriber"
)

const (
	// errands is the topic of copies of the messages of some keys, which operators work on. A copy has the id of its message behind errand.
	errands = "errands"
	errand  = "errand-"
	// desk is the group whose records operators delete, edit, park, pause, requeue and skip.
	desk = "desk"
	// errandKeys is how many of the keys have copies: more of them would be most of the load.
	errandKeys = keyCount / 3
	// guestCount is the number of groups that come and go.
	guestCount = 3
)

func guestName(i int) string { return "guest-" + strconv.Itoa(i) }

// hasErrands reports whether the messages of the key have copies.
func hasErrands(key string) bool {
	for i := range errandKeys {
		if key == keyName(i) {
			return true
		}
	}
	return false
}

// errandsOf are copies of the messages.
func errandsOf(messages []*message.Message) (copies []*message.Message) {
	for _, msg := range messages {
		if key := msg.Metadata.Get(outmill.MetadataKey); hasErrands(key) {
			made := message.NewMessage(errand+msg.UUID, msg.Payload)
			outmill.SetKey(made, key)
			copies = append(copies, made)
		}
	}
	return copies
}

// errandsIn are the messages of the ledger that have copies.
func errandsIn(ledger map[string]entry) map[string]entry {
	some := maps.Clone(ledger)
	maps.DeleteFunc(some, func(_ string, e entry) bool { return !hasErrands(e.key) })
	return some
}

// addDesk adds the handler of the group desk. It notes messages in a journal of its own, and sometimes fails for good, which parks the key.
func addDesk(router *message.Router, db database, logger watermill.LoggerAdapter) (io.Closer, error) {
	journal, err := appendTo(desk)
	if err != nil {
		return nil, err
	}
	config := reading(desk, outmill.OrderKey)
	config.KeyPolicy = outmill.KeyPark
	sub, err := subscriber.New(db.outbox(), config, logger)
	if err != nil {
		return journal, err
	}
	router.AddConsumerHandler(desk, errands, sub, func(msg *message.Message) error {
		// Each failure parks all that waits behind it, which may be thousands.
		if rand.IntN(50) == 0 {
			return outmill.Permanent(errMoody)
		}
		return note(journal, msg)
	})
	return journal, nil
}

// appendTo opens a file beside the journal, whose lines survive the death of their writer.
func appendTo(name string) (*os.File, error) {
	return os.OpenFile(os.Getenv(envJournal)+"-"+name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// operate is a process of an operator, and of the groups that come and go.
func operate(ctx context.Context, db database, _ watermill.LoggerAdapter) error {
	journal, err := appendTo(roleOperator)
	if err != nil {
		return err
	}
	defer journal.Close()
	repairs, repairable := outmill.As[roles.Repairs](db.outbox())
	pauses, pausable := outmill.As[roles.Pauses](db.outbox())
	if !repairable || !pausable {
		return errors.New("the store has no roles for operators")
	}
	o := &operator{db: db, repairs: repairs, pauses: pauses, journal: journal}
	var work sync.WaitGroup
	defer work.Wait()
	for i := range guestCount {
		work.Go(func() { o.visit(ctx, guestName(i)) })
	}
	for storekit.Pause(ctx, rand.N(500*time.Millisecond)) == nil {
		deeds := []func(context.Context) error{o.hold, o.resume, o.remove, o.remove, o.revive, o.revive, o.reviveAll}
		o.do(ctx, deeds[rand.IntN(len(deeds))])
	}
	return nil
}

type operator struct {
	db      database
	repairs roles.Repairs
	pauses  roles.Pauses
	journal io.Writer
}

// do calls fn, and reports whether it succeeded. It notes an error that the operator may not get.
func (o *operator) do(ctx context.Context, fn func(context.Context) error) bool {
	within, cancel := context.WithTimeout(ctx, txWithin)
	defer cancel()
	err := fn(within)
	switch {
	case err == nil:
		return true
	// Workers and other calls go on: a record that the operator has seen may be gone, or changed.
	case within.Err() != nil, errors.Is(err, outmill.ErrNotFound), errors.Is(err, roles.ErrNotDead), errors.Is(err, roles.ErrRecordChanged):
	default:
		if _, expected := kindOf(o.db, err); !expected {
			o.say("strange", err.Error())
		}
	}
	return false
}

// say writes one line, which the death of this process does not divide.
func (o *operator) say(verb, text string) {
	if _, err := fmt.Fprintf(o.journal, "%s %s\n", verb, strings.ReplaceAll(text, "\n", " ")); err != nil {
		panic(err)
	}
}

func (o *operator) hold(ctx context.Context) error {
	o.say("pause", "")
	return o.pauses.Pause(ctx, roles.PauseScope{Group: desk, Topic: errands, Key: keyName(rand.IntN(errandKeys))}, roleOperator, "")
}

// resume ends all pauses, also those of an operator that was killed.
func (o *operator) resume(ctx context.Context) error {
	paused, err := o.pauses.Paused(ctx)
	for _, p := range paused {
		if err == nil {
			_, err = o.pauses.Resume(ctx, p.PauseScope)
		}
	}
	return err
}

// remove deletes some of the oldest records, of any status. It writes to the journal first: a process that is killed after a deletion
// writes nothing more.
func (o *operator) remove(ctx context.Context) error {
	found, err := o.db.outbox().List(ctx, outmill.ListQuery{Group: desk, Topic: errands, Limit: 50})
	if err != nil || len(found) == 0 {
		return err
	}
	var ids []outmill.WorkItemID
	for range 1 + rand.IntN(3) {
		r := found[rand.IntN(len(found))]
		o.say("delete", r.MessageID)
		ids = append(ids, r.ID)
	}
	_, err = o.db.outbox().Delete(ctx, ids...)
	return err
}

// revive requeues dead records, skips them, or edits them first.
func (o *operator) revive(ctx context.Context) error {
	query := outmill.ListQuery{Group: desk, Topic: errands, Content: true}
	for {
		dead, err := o.repairs.DeadLetters(ctx, query)
		if err != nil {
			return err
		}
		if err := o.reviveEach(ctx, dead.Letters); err != nil || dead.Done {
			return err
		}
		query.After = dead.Next
	}
}

func (o *operator) reviveEach(ctx context.Context, letters []roles.DeadLetter) (err error) {
	for _, letter := range letters {
		r := letter.Record
		if err != nil {
			return err
		}
		switch rand.IntN(3) {
		case 0:
			o.say("skip", r.MessageID)
			_, err = o.repairs.Skip(ctx, r.ID)
			continue
		case 1:
			o.say("edit", r.MessageID)
			changed := maps.Clone(r.Metadata)
			if changed == nil {
				changed = map[string]string{}
			}
			changed["chaos_edited"] = strconv.Itoa(rand.Int())
			if _, err := o.repairs.Edit(ctx, r.ID, roles.Edit{Seen: storekit.FingerprintOf(r), Metadata: changed}); err != nil {
				return err
			}
		}
		o.say("requeue", r.MessageID)
		_, err = o.db.outbox().Requeue(ctx, r.ID)
	}
	return err
}

func (o *operator) reviveAll(ctx context.Context) error {
	o.say("requeue", "all")
	query := outmill.ListQuery{Group: desk, Topic: errands}
	for {
		page, err := o.repairs.RequeueWhere(ctx, query)
		if err != nil || page.Done {
			return err
		}
		query.After = page.Next
	}
}

// visit registers a group, reads for a while, and drops the group, again and again. A group that a killed process has left goes on.
func (o *operator) visit(ctx context.Context, group string) {
	journal, err := appendTo(group)
	if err != nil {
		panic(err)
	}
	defer journal.Close()
	store := o.db.outbox()
	for storekit.Pause(ctx, rand.N(2*time.Second)) == nil {
		o.do(ctx, func(ctx context.Context) error {
			return store.RegisterGroup(ctx, outmill.Registration{Group: group, Topics: outmill.Topics{Include: []string{errands}}})
		})
		owner := outmill.NewOwnerToken()
		for end := time.Now().Add(rand.N(5 * time.Second)); time.Now().Before(end); {
			if !o.do(ctx, func(ctx context.Context) error { return o.read(ctx, owner, group, journal) }) {
				// An answer may be lost.
				owner = outmill.NewOwnerToken()
			}
			if storekit.Pause(ctx, ownTarget().poll) != nil {
				break
			}
		}
		o.say("drop", group)
		o.do(context.WithoutCancel(ctx), func(ctx context.Context) error { _, err := store.DropGroup(ctx, group); return err })
	}
}

func (o *operator) read(ctx context.Context, owner outmill.OwnerToken, group string, journal io.Writer) error {
	store := o.db.outbox()
	found, err := store.Claim(ctx, outmill.ClaimRequest{
		Owner: owner, Group: group, Topics: outmill.Topics{Include: []string{errands}}, Limit: 50, Lease: lease, Order: outmill.OrderKey,
	})
	if err != nil || len(found) == 0 {
		return err
	}
	leases := make([]outmill.Lease, len(found))
	for i, r := range found {
		leases[i] = r.Lease()
		by := fmt.Sprintf("%s:%s:claim-%d:%s", os.Getenv(envName), group, r.Claims, time.Now().UTC().Format("15:04:05.000000"))
		if _, err := fmt.Fprintf(journal, "%s %s %s %s\n", r.MessageID, r.Key, r.Payload, by); err != nil {
			return err
		}
	}
	if rand.IntN(20) == 0 {
		return store.Release(ctx, leases)
	}
	return store.Ack(ctx, group, leases)
}

// operated is what operators have said.
type operated struct {
	deeds   map[string]int
	strange []string
	// removed are the messages that they have deleted or skipped, or have tried to.
	removed map[string]bool
}

func readOperators(t *testing.T, file string) operated {
	t.Helper()
	o := operated{deeds: map[string]int{}, removed: map[string]bool{}}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		verb, of, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		o.deeds[verb]++
		switch verb {
		case "strange":
			o.strange = append(o.strange, of)
		case "delete", "skip":
			o.removed[strings.TrimPrefix(of, errand)] = true
		}
	}
	return o
}

// judgeDesk judges what the group desk has seen, without the messages that were removed: a worker that was stopped while it had one may see
// it later than the messages behind it.
func judgeDesk(ledger map[string]entry, sightings []sighting, o operated) verdict {
	left := maps.Clone(ledger)
	maps.DeleteFunc(left, func(uuid string, _ entry) bool { return o.removed[uuid] })
	return judge(left, slices.DeleteFunc(slices.Clone(sightings), func(s sighting) bool { return o.removed[s.uuid] }))
}

// judgeGuest judges what a group has seen that comes and goes. It misses what it was not there for.
func judgeGuest(ledger map[string]entry, sightings []sighting) verdict {
	met := map[string]entry{}
	for _, s := range sightings {
		if truth, committed := ledger[s.uuid]; committed {
			met[s.uuid] = truth
		}
	}
	return judge(met, sightings)
}

func blameAll(verdicts map[string]verdict) (all []string) {
	for _, group := range slices.Sorted(maps.Keys(verdicts)) {
		all = append(all, verdicts[group].blame(group)...)
	}
	return all
}

func TestJudge_Operators(t *testing.T) {
	t.Parallel()
	ledger := map[string]entry{"u1": {"a", 1}, "u2": {"a", 2}, "u3": {"a", 3}}
	see := func(uuids ...string) (all []sighting) {
		for _, uuid := range uuids {
			all = append(all, sighting{uuid: uuid, entry: ledger[uuid]})
		}
		return all
	}
	o := operated{removed: map[string]bool{"u2": true}}
	require.Empty(t, judgeDesk(ledger, see("u1", "u3"), o).blame(""))
	require.Empty(t, judgeDesk(ledger, see("u1", "u3", "u2"), o).blame(""))
	require.NotEmpty(t, judgeDesk(ledger, see("u1", "u2"), o).blame(""), "u3 is lost")
	require.NotEmpty(t, judgeDesk(ledger, see("u3", "u1"), o).blame(""), "u1 is late")
	require.Empty(t, judgeGuest(ledger, see("u1", "u3")).blame(""))
	require.NotEmpty(t, judgeGuest(ledger, see("u3", "u2")).blame(""), "u2 is late")
	require.NotEmpty(t, judgeGuest(ledger, see("u1", "x")).blame(""), "x was rolled back")
}
