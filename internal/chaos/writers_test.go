//go:build unix

package chaos_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/publisher"
)

const (
	// writersEach is how many writers a process has.
	writersEach = 3
	keyCount    = 12
	// txWithin is the longest time for a writer's transaction.
	txWithin = 10 * time.Second
)

func keyName(i int) string { return "account-" + strconv.Itoa(i) }

func upTo(dice *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(dice.Int64N(int64(d)))
}

// write is a process of writers: they write to the ledger and publish what they
// wrote, in one transaction.
func write(ctx context.Context, db database, _ watermill.LoggerAdapter) error {
	pub, err := publisher.New(db.outbox(), publisher.Config{RequireTx: true, PublishTimeout: txWithin}, nil)
	if err != nil {
		return err
	}
	defer pub.Close()
	reports, err := os.OpenFile(os.Getenv(envReports), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer reports.Close()
	seed, err := strconv.ParseUint(os.Getenv(envDice), 10, 64)
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	for i := range writersEach {
		w := &writer{db: db, pub: pub, topic: os.Getenv(envTopic), dice: rand.New(rand.NewPCG(seed, uint64(i)))}
		work.Go(func() { w.run(ctx, reports, ownTarget().pause) })
	}
	work.Wait()
	return nil
}

type writer struct {
	db    database
	pub   *publisher.Publisher
	topic string
	dice  *rand.Rand
}

// run transacts until ctx ends, and finishes the last transaction.
func (w *writer) run(ctx context.Context, reports io.Writer, longest time.Duration) {
	for {
		r := w.transact()
		// One write, which the death of this process does not divide.
		line, err := json.Marshal(r)
		if err == nil {
			_, err = reports.Write(append(line, '\n'))
		}
		if err != nil {
			panic(err)
		}
		pause := upTo(w.dice, longest)
		if r.Trouble != "" {
			pause = max(pause, 100*time.Millisecond)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// report is the result of a transaction, as its writer knows it.
type report struct {
	// Told has the messages of a transaction that was reported as committed.
	Told map[string]int `json:",omitempty"`
	// RolledBack counts the messages that the writer took back on purpose.
	RolledBack int `json:",omitempty"`
	// Trouble is the kind of an error, Strange its text if it may not be.
	Trouble string `json:",omitempty"`
	Strange string `json:",omitempty"`
}

func (w *writer) transact() report {
	ctx, cancel := context.WithTimeout(context.Background(), txWithin)
	defer cancel()
	var j *job
	err := w.db.transact(ctx, w.dice, func(ctx context.Context, s session) error {
		j = &job{writer: w, keys: chooseKeys(w.dice)}
		return j.do(ctx, s)
	})
	var r report
	if j != nil {
		r.RolledBack = j.takenBack
	}
	switch {
	case err == nil:
		r.Told = map[string]int{}
		for uuid, e := range j.written {
			r.Told[uuid] = e.n
		}
	case errors.Is(err, errChangedMind):
		r.RolledBack += len(j.written)
	default:
		kind, expected := kindOf(w.db, err)
		r.Trouble = kind
		if !expected {
			r.Strange = err.Error()
		}
	}
	return r
}

// chooseKeys returns one key or two, in their order, so that two transactions do not wait
// for each other.
func chooseKeys(dice *rand.Rand) []string {
	keys := []string{keyName(dice.IntN(keyCount))}
	if other := keyName(dice.IntN(keyCount)); dice.IntN(4) == 0 && other != keys[0] {
		keys = append(keys, other)
	}
	slices.Sort(keys)
	return keys
}

var errChangedMind = errors.New("changed my mind")

// job is what one transaction does.
type job struct {
	*writer
	keys []string
	// written counts only if the transaction commits.
	written map[string]entry
	// takenBack counts messages of a part that was rolled back.
	takenBack int
}

// do is the body of the transaction.
func (j *job) do(ctx context.Context, s session) (err error) {
	if d, can := s.(doubter); can && j.dice.IntN(6) == 0 {
		err := d.doubt(ctx, func(s session) error {
			written, err := j.book(ctx, s)
			j.takenBack = len(written)
			return err
		})
		if err != nil {
			return err
		}
	}
	if j.written, err = j.book(ctx, s); err != nil {
		return err
	}
	if j.dice.IntN(20) == 0 {
		time.Sleep(upTo(j.dice, 300*time.Millisecond))
	}
	if j.dice.IntN(6) == 0 {
		return errChangedMind
	}
	return nil
}

// book writes up to three entries for each key and publishes them, some as the
// steps of a join.
func (j *job) book(ctx context.Context, s session) (map[string]entry, error) {
	written := map[string]entry{}
	var messages []*message.Message
	for _, key := range j.keys {
		count := 1 + j.dice.IntN(3)
		last, err := s.advance(ctx, key, count)
		if err != nil {
			return nil, err
		}
		for range count {
			last++
			msg := message.NewMessage(watermill.NewUUID(), []byte(strconv.Itoa(last)))
			outmill.SetKey(msg, key)
			if err := s.record(ctx, msg.UUID, entry{key, last}); err != nil {
				return nil, err
			}
			written[msg.UUID] = entry{key, last}
			messages = append(messages, msg)
		}
	}
	ctx = s.carry(ctx)
	if j.dice.IntN(4) == 0 {
		if err := j.join(ctx, s, messages); err != nil {
			return nil, err
		}
	}
	if copies := errandsOf(messages); len(copies) > 0 {
		if err := j.pub.WithContext(ctx).Publish(errands, copies...); err != nil {
			return nil, err
		}
	}
	return written, j.pub.WithContext(ctx).Publish(j.topic, messages...)
}

// account sums up the reports of all writers.
type account struct {
	told       map[string]int
	rolledBack int
	trouble    map[string]int
	strange    []string
}

func readReports(t *testing.T, file string) account {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	a := account{told: map[string]int{}, trouble: map[string]int{}}
	for line := range bytes.Lines(text) {
		var r report
		require.NoError(t, json.Unmarshal(line, &r), string(line))
		maps.Copy(a.told, r.Told)
		a.rolledBack += r.RolledBack
		if r.Trouble != "" {
			a.trouble[r.Trouble]++
		}
		if r.Strange != "" {
			a.strange = append(a.strange, r.Strange)
		}
	}
	return a
}

// forgotten returns the commits that were reported to a writer but are not in the ledger.
func (a account) forgotten(ledger map[string]entry) []string {
	var all []string
	for uuid, n := range a.told {
		if ledger[uuid].n != n {
			all = append(all, fmt.Sprintf("%d %s", n, uuid))
		}
	}
	return all
}
