package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/storetest/internal/mutants"
	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/outmill/outmill"
)

// mutant is mutants.Mutant, for a table.
type mutant struct {
	Name    string
	Section string
	Noticed string
	Change  func(mutants.File) outmill.Store
}

func TestRun_BrokenStores(t *testing.T) {
	// The test of the store that gives no hint then fails sooner.
	hintWithin = time.Second
	mutants.RequireNoticed(t, sections(), suite.Modes()[0], broken())
}

// TestRun_BrokenStoresThatRetain has the faults that show only if acked records are retained.
func TestRun_BrokenStoresThatRetain(t *testing.T) {
	mutants.RequireNoticed(t, sections(), suite.Modes()[1], []mutant{
		{"names no worker", "settle", "OBX-029 a processed record keeps the name of the worker that acked it, up to 255 UTF-16 units",
			func(f mutants.File) outmill.Store { return namesNoWorker{f} }},
	})
}

func broken() []mutant {
	return []mutant{
		{"loses acks", "settle", "OBX-032 an acked record never comes again", func(f mutants.File) outmill.Store { return losesAcks{f} }},
		{"hands out what is leased", "claim", "OBX-019 OBX-101 a leased record is not handed out again, not to its owner either",
			func(f mutants.File) outmill.Store { return &claimsTwice{File: f} }},
		{"ignores the limit", "claim", "OBX-026 a claim hands out no more than its limit",
			claims(func(r *outmill.ClaimRequest) { r.Limit *= 2 })},
		{"ignores MaxBytes", "claim", "MaxBytes bounds the sum of the records' sizes", claims(func(r *outmill.ClaimRequest) { r.MaxBytes = 0 })},
		{"ignores keys", "order", "a key that an owner holds is not handed to another owner",
			claims(func(r *outmill.ClaimRequest) { r.Order = outmill.OrderNone })},
		{"takes keys for topics", "order", "a held key does not hold up other keys", claims(func(r *outmill.ClaimRequest) {
			if r.Order == outmill.OrderKey {
				r.Order = outmill.OrderTopic
			}
		})},
		{"blocks where it should skip", "order", "a record that waits for a retry lets its key go on under Skip",
			claims(func(r *outmill.ClaimRequest) { r.KeyPolicy = outmill.KeyBlock })},
		{"skips where it should block", "order", "a record that waits for a retry holds its key under Block, from its holder too",
			claims(func(r *outmill.ClaimRequest) {
				if r.Order != outmill.OrderNone {
					r.KeyPolicy = outmill.KeySkip
				}
			})},
		{"ignores the topics of a claim", "topics", "a claim takes from the topics that its patterns match and no others",
			claims(func(r *outmill.ClaimRequest) { r.Topics = outmill.Topics{} })},
		{"leases for ever", "claim", "OBX-020 a claim leases until now plus the lease",
			claims(func(r *outmill.ClaimRequest) { r.Lease = 1000 * time.Hour })},
		{"hands out suspects together", "suspects", "a suspect is handed out alone", func(f mutants.File) outmill.Store { return claimsMore{f} }},
		{"ignores due times", "time", "OBX-012 OBX-018 a record is not claimed before its due time",
			mutants.Appends(func(r *outmill.Record) { r.DueAt, r.Delay = time.Time{}, 0 })},
		{"ignores expiry", "time", "a record is never claimed after its expiry, even before the janitor comes",
			mutants.Appends(func(r *outmill.Record) { r.ExpiresAt, r.TimeToLive = time.Time{}, 0 })},
		{"ignores dedup keys", "dedup", "a record with a dedup key that was seen is left out and marked Duplicate",
			mutants.Appends(func(r *outmill.Record) { r.DedupKey = "" })},
		{"makes an empty payload a tombstone", "append", "OBX-006 a nil payload stays nil, and an empty one stays empty",
			mutants.Appends(func(r *outmill.Record) {
				if len(r.Payload) == 0 {
					r.Payload = nil
				}
			})},
		{"loses metadata", "append", "metadata of any text comes back as it was", mutants.Appends(func(r *outmill.Record) { r.Metadata = nil })},
		{"appends one record after the other", "append", "Append writes all the records or none", func(f mutants.File) outmill.Store {
			return appendsSingly{f}
		}},
		{"commits the caller's transaction", "transactions", "OBX-003 what is appended in a transaction is gone when it rolls back",
			mutants.Commits},
		{"leaves half an Append in the caller's transaction", "transactions",
			"an Append that fails in a caller's transaction leaves nothing there if the caller commits", func(f mutants.File) outmill.Store {
				return appendsSingly{f}
			}},
		{"takes foreign transactions for none", "transactions", "Append in a transaction of another store is ErrForeignTx and nothing is written",
			func(f mutants.File) outmill.Store { return ignoresForeign{f} }},
		{"acks for other owners", "settle", "OBX-030 OBX-031 Ack passes over the lease of another owner", func(f mutants.File) outmill.Store {
			return acksAny{f}
		}},
		{"acks under older claims", "settle", "OBX-030 Ack passes over an older claim of the same owner", func(f mutants.File) outmill.Store {
			return acksAny{f}
		}},
		{"abandons without counting", "settle", "OBX-035 OBX-036 OBX-037 OBX-041 Abandon acts on a lease that stands",
			func(f mutants.File) outmill.Store { return abandonsUncounted{f} }},
		{"counts releases", "settle", "Release acts on a lease that stands", func(f mutants.File) outmill.Store { return countsReleases{f} }},
		{"extends everything", "settle", "Extend returns the leases that still stand and no others", func(f mutants.File) outmill.Store {
			return extendsAll{f}
		}},
		{"extends both leases of a record", "settle", "of two leases of one record in one call Extend returns the valid one",
			func(f mutants.File) outmill.Store { return extendsAll{f} }},
		{"parks nothing", "park", "a record failed with Park takes the later pending records of its key along",
			func(f mutants.File) outmill.Store { return parksNothing{f} }},
		{"tells those that are parked along why", "park",
			"a record that was parked along keeps its own attempts, and its last error is ParkedError", func(f mutants.File) outmill.Store {
				return parksWithReason{f}
			}},
		{"returns Stats in any order", "inspect", "Stats is sorted by group and topic, with records that wait for a group first",
			func(f mutants.File) outmill.Store { return reversesStats{f} }},
		{"counts what is delayed as due", "inspect", "Stats counts the pending records that are not due yet, no further than its limit",
			func(f mutants.File) outmill.Store { return countsAllAsDue{f} }},
		{"reaps without a limit", "reap", "ReapExpired does no more than its limit", func(f mutants.File) outmill.Store { return reapsAll{f} }},
		{"forgets what waits for a group", "groups", "records that waited go to the group that registers first, and to that one only",
			func(f mutants.File) outmill.Store { return forgetsWaiting{f} }},
		{"hands out later records of a key before what no group has taken in", "groups",
			"a record of a transaction that was open during a registration comes before later ones of its key", func(f mutants.File) outmill.Store {
				return &passesOver{File: f, kept: map[outmill.WorkItemID]int{}}
			}},
		{"takes what waits although it should hold", "holding", "a registration that holds leaves what waited waiting",
			registers(func(r *outmill.Registration) { r.Hold = false })},
		{"takes what waits when the registration is renewed", "holding", "neither a claim nor a renewed registration ends the holding",
			func(f mutants.File) outmill.Store { return holdsOnce{f} }},
		{"holds for ever", "holding", "a registration that holds no longer takes what waited, in front of what has come since",
			func(f mutants.File) outmill.Store { return holdsForEver{f} }},
		{"forgets workers", "worker names", "Groups shows the workers that registered a group, the one seen last first",
			registers(func(r *outmill.Registration) { r.Worker = "" })},
		{"ends what is permanent", "registrations", "a registration without a TTL never ends",
			registers(func(r *outmill.Registration) { r.TTL = max(r.TTL, time.Hour) })},
		{"never ends anything", "registrations", "each registration with a TTL moves its end to now plus the TTL",
			registers(func(r *outmill.Registration) { r.TTL = 0 })},
		{"lets a TTL end what was permanent", "registrations", "a permanent registration stays permanent whatever TTL comes later",
			func(f mutants.File) outmill.Store { return lastCallWins{f} }},
		{"leaves it at an end that nobody sees to", "registrations",
			"a registration whose end has passed goes, with its undelivered records, and both are counted", func(f mutants.File) outmill.Store {
				return expiresNothing{f}
			}},
		{"drops the groups of ended registrations", "registrations", "what another registration of the group selects stays",
			func(f mutants.File) outmill.Store { return dropsEnded{f} }},
		{"takes leased records with their registration", "registrations",
			"a record under a lease that has not ended outlives its registration, and its owner may ack it", func(f mutants.File) outmill.Store {
				return dropsLeased{f}
			}},
		{"forgets what comes back after the end", "registrations",
			"a record that comes back after its registration has gone goes with a later round", func(f mutants.File) outmill.Store {
				return looksOnce{f}
			}},
		{"ends registrations without a limit", "registrations",
			"ExpireRegistrations does no more than its limit of either, and ends all in the end", func(f mutants.File) outmill.Store {
				return expiresAll{f}
			}},
		{"ends what was renewed in time", "registrations",
			"a group that registers again after its end but before the janitor's round loses nothing", func(f mutants.File) outmill.Store {
				return renewsInVain{f}
			}},
		{"counts without a limit", "inspect", "Stats counts no further than its limit", func(f mutants.File) outmill.Store {
			return countsAll{f}
		}},
		{"counts ended leases as leased", "inspect", "Stats counts a record whose lease has ended as due, and not as leased",
			func(f mutants.File) outmill.Store { return countsStatuses{f} }},
		{"gives no hints", "wake", "a hint comes after a release", func(f mutants.File) outmill.Store { return silent{f} }},
		{"returns the whole schema for each version", "schema", "StatementsFrom returns the end of Statements, less for each later version",
			func(f mutants.File) outmill.Store { return alwaysWhole{f} }},
		{"closes before its workers have left", "calls", "Close lets attached workers settle their leases first",
			func(f mutants.File) outmill.Store { return &closesFirst{File: f} }},
		{"works when closed", "calls", "every call on a closed store is ErrClosed", func(f mutants.File) outmill.Store { return staysOpen{f} }},
		{"ignores contexts", "calls", "every call with a context that was cancelled is its error, and does nothing",
			func(f mutants.File) outmill.Store { return ignoresContexts{f} }},

		{"loses acks, on a walk", "model", walkSentence, func(f mutants.File) outmill.Store { return losesAcks{f} }},
		{"hands out what is leased, on a walk", "model", walkSentence, func(f mutants.File) outmill.Store { return &claimsTwice{File: f} }},
		{"ignores keys, on a walk", "model", walkSentence, claims(func(r *outmill.ClaimRequest) { r.Order = outmill.OrderNone })},
		{"takes keys for topics, on a walk", "model", walkSentence, claims(func(r *outmill.ClaimRequest) {
			if r.Order == outmill.OrderKey {
				r.Order = outmill.OrderTopic
			}
		})},
		{"ignores full parts, on a walk", "model", walkInPartsSentence, claims(func(r *outmill.ClaimRequest) { r.Full = nil })},
		{"ignores keys of parts, on a walk", "model", walkInPartsSentence, claims(func(r *outmill.ClaimRequest) { r.Order = outmill.OrderNone })},
		{"ignores due times, on a walk", "model", walkSentence, mutants.Appends(func(r *outmill.Record) { r.DueAt, r.Delay = time.Time{}, 0 })},
		{"parks nothing, on a walk", "model", walkSentence, func(f mutants.File) outmill.Store { return parksNothing{f} }},
		{"drops a release now and then, on a walk", "model", walkSentence, func(f mutants.File) outmill.Store { return &dropsReleases{File: f} }},
	}
}

// TestBrokenStoresUnderStress_Variant has the faults that show only under concurrent calls.
func TestBrokenStoresUnderStress_Variant(t *testing.T) {
	testenv.WithoutRace(t, "stores that break under concurrent calls")
	if !suite.All() {
		t.Skip("skipped: stores that break under concurrent calls; " + suite.EnvAll + "=1 has them run")
	}
	stuckAfter = 3 * time.Second // otherwise stores that keep records take minutes
	mutants.RequireNoticed(t, sections(), suite.Modes()[0], []mutant{
		{"forgets the order behind a retry", "stress", stressSentence, claims(func(r *outmill.ClaimRequest) {
			if r.Order != outmill.OrderNone {
				r.KeyPolicy = outmill.KeySkip
			}
		})},
		{"ignores keys", "stress", stressSentence, claims(func(r *outmill.ClaimRequest) { r.Order = outmill.OrderNone })},
		{"loses what one claim in thirty has leased", "stress", stressSentence, func(f mutants.File) outmill.Store {
			return &losesSome{File: f}
		}},
		{"hands one out twice", "stress", stressSentence, func(f mutants.File) outmill.Store { return &claimsTwice{File: f} }},
		{"keeps what is released", "stress", stressSentence, func(f mutants.File) outmill.Store { return keepsReleased{f} }},
		{"forgets what waits for a group", "stress", stressSentence, func(f mutants.File) outmill.Store { return forgetsWaiting{f} }},
		{"drops records of another group", "stress", stressSentence, func(f mutants.File) outmill.Store { return dropsOthers{f} }},
		{"refuses one append in twenty", "stress", stressSentence, func(f mutants.File) outmill.Store { return &refusesSome{File: f} }},
	})
}

const stressSentence = "whatever is done at once, each message is handled once, and keys keep their order"

// losesSome acks the records of every thirtieth claim and does not return them.
type losesSome struct {
	mutants.File
	n atomic.Int64
}

func (m *losesSome) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	found, err := m.File.Claim(ctx, req)
	if len(found) == 0 || m.n.Add(1)%30 > 0 {
		return found, err
	}
	return nil, m.Ack(ctx, "", suite.Leases(found))
}

type keepsReleased struct{ mutants.File }

func (m keepsReleased) Release(context.Context, []outmill.Lease) error { return nil }

// dropsOthers also deletes pending records of other groups when it drops a group.
type dropsOthers struct{ mutants.File }

func (m dropsOthers) DropGroup(ctx context.Context, group string) (outmill.Dropped, error) {
	found, err := m.List(ctx, outmill.ListQuery{Status: outmill.StatusPending})
	if err != nil {
		return outmill.Dropped{}, err
	}
	for _, r := range found[:min(20, len(found))] {
		if r.Group != group && r.Group != "" {
			if _, err := m.Delete(ctx, r.ID); err != nil {
				return outmill.Dropped{}, err
			}
		}
	}
	return m.File.DropGroup(ctx, group)
}

var errBusy = errors.New("busy")

// refusesSome does not repeat an attempt after a temporary failure.
type refusesSome struct {
	mutants.File
	n atomic.Int64
}

func (m *refusesSome) Append(ctx context.Context, records ...*outmill.Record) error {
	if m.n.Add(1)%20 == 0 {
		return errBusy
	}
	return m.File.Append(ctx, records...)
}

// alwaysWhole returns the statements that make the whole schema, even if the schema exists.
type alwaysWhole struct{ mutants.File }

func (s alwaysWhole) StatementsFrom(version int) ([]string, error) {
	_, err := s.File.StatementsFrom(version)
	return s.Statements(), err
}

const (
	walkSentence        = "random walks leave the store as the model of a queue"
	walkInPartsSentence = "random walks over fair topics leave the store as the model of a queue"
)

// losesAcks releases records instead of acking them.
type losesAcks struct{ mutants.File }

func (m losesAcks) Ack(ctx context.Context, _ string, leases []outmill.Lease) error {
	return m.Release(ctx, leases)
}

// claimsTwice returns the records of each claim from the next claim, too.
type claimsTwice struct {
	mutants.File
	last atomic.Pointer[outmill.Record]
}

func (m *claimsTwice) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	found, err := m.File.Claim(ctx, req)
	if len(found) == 0 && err == nil {
		if last := m.last.Swap(nil); last != nil {
			return []*outmill.Record{last}, nil
		}
	}
	if len(found) > 0 {
		m.last.Store(found[0])
	}
	return found, err
}

// claims makes mutants that change each request before they claim.
func claims(change func(*outmill.ClaimRequest)) func(mutants.File) outmill.Store {
	return func(f mutants.File) outmill.Store { return claimsOtherwise{f, change} }
}

type claimsOtherwise struct {
	mutants.File
	change func(*outmill.ClaimRequest)
}

func (m claimsOtherwise) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	m.change(&req)
	return m.File.Claim(ctx, req)
}

// claimsMore fills a claim up with the records of another claim.
type claimsMore struct{ mutants.File }

func (m claimsMore) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	found, err := m.File.Claim(ctx, req)
	if err != nil || len(found) == 0 || len(found) >= req.Limit {
		return found, err
	}
	req.Limit -= len(found)
	more, err := m.File.Claim(ctx, req)
	return append(found, more...), err
}

type appendsSingly struct{ mutants.File }

func (m appendsSingly) Append(ctx context.Context, records ...*outmill.Record) error {
	for _, r := range records {
		if err := m.File.Append(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

type ignoresForeign struct{ mutants.File }

func (m ignoresForeign) Append(ctx context.Context, records ...*outmill.Record) error {
	if _, err := m.TxOf(ctx); err != nil {
		ctx = context.Background()
	}
	return m.File.Append(ctx, records...)
}

// acksAny acks records even if the lease is not valid.
type acksAny struct{ mutants.File }

func (m acksAny) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	leases = slices.Clone(leases)
	for i, l := range leases {
		if r, err := m.Get(ctx, l.ID); err == nil {
			leases[i] = r.Lease()
		}
	}
	return m.File.Ack(ctx, by, leases)
}

type abandonsUncounted struct{ mutants.File }

func (m abandonsUncounted) Abandon(ctx context.Context, abandonments []outmill.Settlement) error {
	snoozings := make([]outmill.Settlement, len(abandonments))
	for i, a := range abandonments {
		snoozings[i] = outmill.Settlement{Lease: a.Lease, Delay: a.Delay}
	}
	return m.Snooze(ctx, snoozings)
}

type countsReleases struct{ mutants.File }

func (m countsReleases) Release(ctx context.Context, leases []outmill.Lease) error {
	return m.Abandon(ctx, suite.DelayedBy(0, "released", leases))
}

type extendsAll struct{ mutants.File }

func (m extendsAll) Extend(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	_, err := m.File.Extend(ctx, lease, leases)
	return leases, err
}

type parksNothing struct{ mutants.File }

func (m parksNothing) Fail(ctx context.Context, failures []outmill.Settlement) error {
	failures = slices.Clone(failures)
	for i := range failures {
		failures[i].Park = false
	}
	return m.File.Fail(ctx, failures)
}

type parksWithReason struct{ mutants.File }

func (m parksWithReason) Fail(ctx context.Context, failures []outmill.Settlement) error {
	if err := m.File.Fail(ctx, failures); err != nil || !failures[0].Park {
		return err
	}
	_, err := m.DB().ExecContext(ctx, `UPDATE outmill_records SET last_error = ? WHERE stage = 6`, failures[0].Err)
	return err
}

type reversesStats struct{ mutants.File }

func (m reversesStats) Stats(ctx context.Context, limit int) ([]outmill.TopicStats, error) {
	found, err := m.File.Stats(ctx, limit)
	slices.Reverse(found)
	return found, err
}

type countsAllAsDue struct{ mutants.File }

func (m countsAllAsDue) Stats(ctx context.Context, limit int) ([]outmill.TopicStats, error) {
	found, err := m.File.Stats(ctx, limit)
	for i := range found {
		found[i].Delayed = 0
	}
	return found, err
}

type reapsAll struct{ mutants.File }

func (m reapsAll) ReapExpired(ctx context.Context, limit int) (int, error) {
	return m.File.ReapExpired(ctx, 1000*limit)
}

// forgetsWaiting deletes the records that a registration would adopt.
type forgetsWaiting struct{ mutants.File }

func (m forgetsWaiting) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	waiting, err := m.List(ctx, outmill.ListQuery{})
	if err != nil {
		return err
	}
	for _, r := range waiting {
		if r.Group == "" {
			if _, err := m.Delete(ctx, r.ID); err != nil {
				return err
			}
		}
	}
	return m.File.RegisterGroup(ctx, regs...)
}

// passesOver returns records that were appended in a transaction only after the second
// registration that follows.
type passesOver struct {
	mutants.File
	mu   sync.Mutex
	kept map[outmill.WorkItemID]int
}

func (m *passesOver) Append(ctx context.Context, records ...*outmill.Record) error {
	err := m.File.Append(ctx, records...)
	if _, inTx := m.Tx(ctx); inTx {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, r := range records {
			m.kept[r.ID] = 2
		}
	}
	return err
}

func (m *passesOver) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	m.mu.Lock()
	for id := range m.kept {
		m.kept[id]--
	}
	m.mu.Unlock()
	return m.File.RegisterGroup(ctx, regs...)
}

func (m *passesOver) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	found, err := m.File.Claim(ctx, req)
	m.mu.Lock()
	defer m.mu.Unlock()
	var back []outmill.Lease
	found = slices.DeleteFunc(found, func(r *outmill.Record) bool {
		if m.kept[r.ID] > 0 {
			back = append(back, r.Lease())
		}
		return m.kept[r.ID] > 0
	})
	return found, errors.Join(err, m.Release(ctx, back))
}

// registers makes mutants that change each registration before they make it.
func registers(change func(*outmill.Registration)) func(mutants.File) outmill.Store {
	return func(f mutants.File) outmill.Store { return registersOtherwise{f, change} }
}

// holdsOnce ends the holding with the second registration.
type holdsOnce struct{ mutants.File }

func (m holdsOnce) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	known, err := m.Groups(ctx)
	if err != nil {
		return err
	}
	for i := range regs {
		regs[i].Hold = regs[i].Hold && len(known) == 0
	}
	return m.File.RegisterGroup(ctx, regs...)
}

// holdsForEver registers a group that holds with Hold again.
type holdsForEver struct{ mutants.File }

func (m holdsForEver) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	known, err := m.Groups(ctx)
	if err != nil {
		return err
	}
	for i := range regs {
		regs[i].Hold = regs[i].Hold || len(known) > 0
	}
	return m.File.RegisterGroup(ctx, regs...)
}

type registersOtherwise struct {
	mutants.File
	change func(*outmill.Registration)
}

func (m registersOtherwise) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	for i := range regs {
		m.change(&regs[i])
	}
	return m.File.RegisterGroup(ctx, regs...)
}

// lastCallWins lets a later TTL end a permanent registration.
type lastCallWins struct{ mutants.File }

func (m lastCallWins) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	for _, reg := range regs {
		if reg.TTL == 0 {
			continue
		}
		if _, err := m.DB().ExecContext(ctx, `UPDATE outmill_entries SET at = 1 WHERE kind = 'registration' AND at = 0`); err != nil {
			return err
		}
	}
	return m.File.RegisterGroup(ctx, regs...)
}

type expiresNothing struct{ mutants.File }

func (m expiresNothing) ExpireRegistrations(context.Context, int) (registrations, records int, err error) {
	return 0, 0, nil
}

// dropsEnded drops the whole group when one of its registrations ends.
type dropsEnded struct{ mutants.File }

func (m dropsEnded) ExpireRegistrations(ctx context.Context, limit int) (registrations, records int, err error) {
	groups, err := m.Groups(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, g := range groups {
		for _, r := range g.Registrations {
			if !r.ExpiresAt.IsZero() && r.ExpiresAt.Before(time.Now()) {
				n, err := m.DropGroup(ctx, g.Group)
				if err != nil {
					return 0, 0, err
				}
				registrations, records = registrations+1, records+n.Deleted
			}
		}
	}
	return registrations, records, nil
}

type dropsLeased struct{ mutants.File }

func (m dropsLeased) ExpireRegistrations(ctx context.Context, limit int) (registrations, records int, err error) {
	if _, err := m.DB().ExecContext(ctx, `UPDATE outmill_records SET wake_at = 1 WHERE stage = 4`); err != nil {
		return 0, 0, err
	}
	return m.File.ExpireRegistrations(ctx, limit)
}

// looksOnce forgets the groups of which registrations have ended.
type looksOnce struct{ mutants.File }

func (m looksOnce) ExpireRegistrations(ctx context.Context, limit int) (registrations, records int, err error) {
	if registrations, records, err = m.File.ExpireRegistrations(ctx, limit); err == nil {
		_, err = m.DB().ExecContext(ctx, `DELETE FROM outmill_entries WHERE kind = 'ended'`)
	}
	return registrations, records, err
}

type expiresAll struct{ mutants.File }

func (m expiresAll) ExpireRegistrations(ctx context.Context, limit int) (registrations, records int, err error) {
	return m.File.ExpireRegistrations(ctx, 1000*limit)
}

// renewsInVain removes registrations whose end has passed, although they are renewed before the
// janitor comes.
type renewsInVain struct{ mutants.File }

func (m renewsInVain) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	if _, _, err := m.ExpireRegistrations(ctx, 1000); err != nil {
		return err
	}
	return m.File.RegisterGroup(ctx, regs...)
}

type countsAll struct{ mutants.File }

func (m countsAll) Stats(ctx context.Context, _ int) ([]outmill.TopicStats, error) {
	return m.File.Stats(ctx, 0)
}

type countsStatuses struct{ mutants.File }

func (m countsStatuses) Stats(ctx context.Context, limit int) ([]outmill.TopicStats, error) {
	found, err := m.File.Stats(ctx, limit)
	leased, listErr := m.List(ctx, outmill.ListQuery{Status: outmill.StatusLeased})
	for i := range found {
		found[i].Pending += found[i].Leased
		found[i].Leased = 0
		for _, r := range leased {
			if r.Group == found[i].Group && r.Topic == found[i].Topic {
				found[i].Leased++
				found[i].Pending--
			}
		}
	}
	return found, errors.Join(err, listErr)
}

type silent struct{ mutants.File }

func (m silent) Wake(context.Context, func(topic string)) {}

type staysOpen struct{ mutants.File }

func (m staysOpen) Close() error { return nil }

// closesFirst has its workers leave when it is closed.
type closesFirst struct {
	mutants.File
	leaves []func(context.Context)
}

func (m *closesFirst) Attach(leave func(context.Context)) (detach func(), err error) {
	m.leaves = append(m.leaves, leave)
	return func() {}, nil
}

func (m *closesFirst) Close() error {
	err := m.File.Close()
	for _, leave := range m.leaves {
		leave(context.Background())
	}
	return err
}

type ignoresContexts struct{ mutants.File }

func (m ignoresContexts) Release(ctx context.Context, leases []outmill.Lease) error {
	return m.File.Release(context.WithoutCancel(ctx), leases)
}

// dropsReleases acks the records of every third release.
type dropsReleases struct {
	mutants.File
	n atomic.Int64
}

func (m *dropsReleases) Release(ctx context.Context, leases []outmill.Lease) error {
	if m.n.Add(1)%3 == 0 {
		return m.Ack(ctx, "", leases)
	}
	return m.File.Release(ctx, leases)
}

type namesNoWorker struct{ mutants.File }

func (m namesNoWorker) Ack(ctx context.Context, _ string, leases []outmill.Lease) error {
	return m.File.Ack(ctx, "", leases)
}
