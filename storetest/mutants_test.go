package storetest

import (
	"context"
	"database/sql"
	"slices"
	"sync/atomic"
	"time"

	"github.com/outmill/outmill"
)

// mutant is a store that breaks one promise, and the sentence that says so.
type mutant struct {
	name    string
	section string
	noticed string
	change  func(file) outmill.Store
}

func mutants() []mutant {
	return []mutant{
		{"loses acks", "settle", "OBX-032 an acked record never comes again", func(f file) outmill.Store { return losesAcks{f} }},
		{"hands out what is leased", "claim", "OBX-019 OBX-101 a leased record is not handed out again, not to its owner either", func(f file) outmill.Store { return &claimsTwice{file: f} }},
		{"ignores the limit", "claim", "OBX-026 a claim hands out no more than its limit", claims(func(r *outmill.ClaimRequest) { r.Limit *= 2 })},
		{"ignores MaxBytes", "claim", "MaxBytes bounds the sum of the records' sizes", claims(func(r *outmill.ClaimRequest) { r.MaxBytes = 0 })},
		{"ignores keys", "order", "a key that an owner holds is not handed to another owner", claims(func(r *outmill.ClaimRequest) { r.Order = outmill.OrderNone })},
		{"takes keys for topics", "order", "a held key does not hold up other keys", claims(func(r *outmill.ClaimRequest) {
			if r.Order == outmill.OrderKey {
				r.Order = outmill.OrderTopic
			}
		})},
		{"blocks where it should skip", "order", "a record that waits for a retry lets its key go on under Skip", claims(func(r *outmill.ClaimRequest) { r.KeyPolicy = outmill.KeyBlock })},
		{"skips where it should block", "order", "a record that waits for a retry holds its key under Block, from its holder too", claims(func(r *outmill.ClaimRequest) {
			if r.Order != outmill.OrderNone {
				r.KeyPolicy = outmill.KeySkip
			}
		})},
		{"ignores the topics of a claim", "topics", "a claim takes from the topics that its patterns match and no others", claims(func(r *outmill.ClaimRequest) { r.Topics = outmill.Topics{} })},
		{"leases for ever", "claim", "OBX-020 a claim leases until now plus the lease", claims(func(r *outmill.ClaimRequest) { r.Lease = 1000 * time.Hour })},
		{"hands out suspects together", "suspects", "a suspect is handed out alone", func(f file) outmill.Store { return claimsMore{f} }},
		{"ignores due times", "time", "OBX-012 OBX-018 a record is not claimed before its due time", appends(func(r *outmill.Record) { r.DueAt, r.Delay = time.Time{}, 0 })},
		{"ignores expiry", "time", "a record is never claimed after its expiry, even before the janitor comes", appends(func(r *outmill.Record) { r.ExpiresAt, r.TimeToLive = time.Time{}, 0 })},
		{"ignores dedup keys", "dedup", "a record with a dedup key that was seen is left out and marked Duplicate", appends(func(r *outmill.Record) { r.DedupKey = "" })},
		{"loses metadata", "append", "metadata of any text comes back as it was", appends(func(r *outmill.Record) { r.Metadata = nil })},
		{"appends one record after the other", "append", "Append writes all the records or none", func(f file) outmill.Store { return appendsSingly{f} }},
		{"commits the caller's transaction", "transactions", "OBX-003 what is appended in a transaction is gone when it rolls back", func(f file) outmill.Store { return commits{f} }},
		{"leaves half an Append in the caller's transaction", "transactions", "an Append that fails in a caller's transaction leaves nothing there if the caller commits", func(f file) outmill.Store { return appendsSingly{f} }},
		{"takes foreign transactions for none", "transactions", "Append in a transaction of another store is ErrForeignTx and nothing is written", func(f file) outmill.Store { return ignoresForeign{f} }},
		{"acks for other owners", "settle", "OBX-030 OBX-031 Ack passes over the lease of another owner", func(f file) outmill.Store { return acksAny{f} }},
		{"acks under older claims", "settle", "Ack passes over an older claim of the same owner", func(f file) outmill.Store { return acksAny{f} }},
		{"abandons without counting", "settle", "OBX-035 OBX-036 OBX-037 OBX-041 Abandon acts on a lease that stands", func(f file) outmill.Store { return abandonsUncounted{f} }},
		{"counts releases", "settle", "Release acts on a lease that stands", func(f file) outmill.Store { return countsReleases{f} }},
		{"extends everything", "settle", "Extend returns the leases that still stand and no others", func(f file) outmill.Store { return extendsAll{f} }},
		{"extends both leases of a record", "settle", "of two leases of one record in one call Extend returns the valid one", func(f file) outmill.Store { return extendsAll{f} }},
		{"parks nothing", "park", "a record failed with Park takes the later pending records of its key along", func(f file) outmill.Store { return parksNothing{f} }},
		{"reaps without a limit", "reap", "ReapExpired does no more than its limit", func(f file) outmill.Store { return reapsAll{f} }},
		{"forgets what waits for a group", "groups", "records that waited go to the group that registers first, and to that one only", func(f file) outmill.Store { return forgetsWaiting{f} }},
		{"forgets workers", "worker names", "Groups shows the workers that registered a group, the one seen last first", registers(func(r *outmill.Registration) { r.Worker = "" })},
		{"ends what is permanent", "registrations", "a registration without a TTL never ends", registers(func(r *outmill.Registration) { r.TTL = max(r.TTL, time.Hour) })},
		{"never ends anything", "registrations", "each registration with a TTL moves its end to now plus the TTL", registers(func(r *outmill.Registration) { r.TTL = 0 })},
		{"lets a TTL end what was permanent", "registrations", "a permanent registration stays permanent whatever TTL comes later", func(f file) outmill.Store { return lastCallWins{f} }},
		{"leaves it at an end that nobody sees to", "registrations", "a registration whose end has passed goes, with its undelivered records, and both are counted", func(f file) outmill.Store { return expiresNothing{f} }},
		{"drops the groups of ended registrations", "registrations", "what another registration of the group selects stays", func(f file) outmill.Store { return dropsEnded{f} }},
		{"takes leased records with their registration", "registrations", "a record under a lease that has not ended outlives its registration, and its owner may ack it", func(f file) outmill.Store { return dropsLeased{f} }},
		{"forgets what comes back after the end", "registrations", "a record that comes back after its registration has gone goes with a later round", func(f file) outmill.Store { return looksOnce{f} }},
		{"ends registrations without a limit", "registrations", "ExpireRegistrations does no more than its limit of either, and ends all in the end", func(f file) outmill.Store { return expiresAll{f} }},
		{"ends what was renewed in time", "registrations", "a group that registers again after its end but before the janitor's round loses nothing", func(f file) outmill.Store { return renewsInVain{f} }},
		{"counts without a limit", "inspect", "Stats counts no further than its limit", func(f file) outmill.Store { return countsAll{f} }},
		{"gives no hints", "wake", "a hint comes after a release", func(f file) outmill.Store { return silent{f} }},
		{"returns the whole schema for each version", "schema", "StatementsFrom returns the end of Statements, less for each later version", func(f file) outmill.Store { return alwaysWhole{f} }},
		{"works when closed", "calls", "every call on a closed store is ErrClosed", func(f file) outmill.Store { return staysOpen{f} }},
		{"ignores contexts", "calls", "every call with a context that was cancelled is its error, and does nothing", func(f file) outmill.Store { return ignoresContexts{f} }},

		{"loses acks, on a walk", "model", walkSentence, func(f file) outmill.Store { return losesAcks{f} }},
		{"hands out what is leased, on a walk", "model", walkSentence, func(f file) outmill.Store { return &claimsTwice{file: f} }},
		{"ignores keys, on a walk", "model", walkSentence, claims(func(r *outmill.ClaimRequest) { r.Order = outmill.OrderNone })},
		{"takes keys for topics, on a walk", "model", walkSentence, claims(func(r *outmill.ClaimRequest) {
			if r.Order == outmill.OrderKey {
				r.Order = outmill.OrderTopic
			}
		})},
		{"ignores due times, on a walk", "model", walkSentence, appends(func(r *outmill.Record) { r.DueAt, r.Delay = time.Time{}, 0 })},
		{"parks nothing, on a walk", "model", walkSentence, func(f file) outmill.Store { return parksNothing{f} }},
		{"drops a release now and then, on a walk", "model", walkSentence, func(f file) outmill.Store { return &dropsReleases{file: f} }},
	}
}

// alwaysWhole: a schema that is there is made again.
type alwaysWhole struct{ file }

func (s alwaysWhole) StatementsFrom(version int) ([]string, error) {
	_, err := s.file.StatementsFrom(version)
	return s.Statements(), err
}

const walkSentence = "random walks leave the store as the model of a queue"

// losesAcks: an ack is a release.
type losesAcks struct{ file }

func (m losesAcks) Ack(ctx context.Context, _ string, leases []outmill.Lease) error {
	return m.Release(ctx, leases)
}

// claimsTwice hands the records of each claim to the next claim too.
type claimsTwice struct {
	file
	last atomic.Pointer[outmill.Record]
}

func (m *claimsTwice) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	found, err := m.file.Claim(ctx, req)
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

// claims makes mutants that claim otherwise than they were asked to.
func claims(change func(*outmill.ClaimRequest)) func(file) outmill.Store {
	return func(f file) outmill.Store { return claimsOtherwise{f, change} }
}

type claimsOtherwise struct {
	file
	change func(*outmill.ClaimRequest)
}

func (m claimsOtherwise) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	m.change(&req)
	return m.file.Claim(ctx, req)
}

// claimsMore fills a claim up with what another one gets.
type claimsMore struct{ file }

func (m claimsMore) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	found, err := m.file.Claim(ctx, req)
	if err != nil || len(found) == 0 || len(found) >= req.Limit {
		return found, err
	}
	req.Limit -= len(found)
	more, err := m.file.Claim(ctx, req)
	return append(found, more...), err
}

// appends makes mutants that append otherwise than they were asked to.
func appends(change func(*outmill.Record)) func(file) outmill.Store {
	return func(f file) outmill.Store { return appendsOtherwise{f, change} }
}

type appendsOtherwise struct {
	file
	change func(*outmill.Record)
}

func (m appendsOtherwise) Append(ctx context.Context, records ...*outmill.Record) error {
	changed := make([]*outmill.Record, len(records))
	for i, r := range records {
		if r != nil {
			clone := *r
			m.change(&clone)
			changed[i] = &clone
		}
	}
	err := m.file.Append(ctx, changed...)
	for i, r := range records {
		if r != nil {
			r.ID, r.MessageID, r.Duplicate = changed[i].ID, changed[i].MessageID, changed[i].Duplicate
		}
	}
	return err
}

type appendsSingly struct{ file }

func (m appendsSingly) Append(ctx context.Context, records ...*outmill.Record) error {
	for _, r := range records {
		if err := m.file.Append(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

type commits struct{ file }

func (m commits) Append(ctx context.Context, records ...*outmill.Record) error {
	if err := m.file.Append(ctx, records...); err != nil {
		return err
	}
	if tx, err := m.TxOf(ctx); err == nil && tx != nil {
		return tx.(*sql.Tx).Commit()
	}
	return nil
}

type ignoresForeign struct{ file }

func (m ignoresForeign) Append(ctx context.Context, records ...*outmill.Record) error {
	if _, err := m.TxOf(ctx); err != nil {
		ctx = context.Background()
	}
	return m.file.Append(ctx, records...)
}

// acksAny acks under whatever lease there is.
type acksAny struct{ file }

func (m acksAny) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	leases = slices.Clone(leases)
	for i, l := range leases {
		if r, err := m.Get(ctx, l.ID); err == nil {
			leases[i] = r.Lease()
		}
	}
	return m.file.Ack(ctx, by, leases)
}

type abandonsUncounted struct{ file }

func (m abandonsUncounted) Abandon(ctx context.Context, abandonments []outmill.Settlement) error {
	snoozings := make([]outmill.Settlement, len(abandonments))
	for i, a := range abandonments {
		snoozings[i] = outmill.Settlement{Lease: a.Lease, Delay: a.Delay}
	}
	return m.Snooze(ctx, snoozings)
}

type countsReleases struct{ file }

func (m countsReleases) Release(ctx context.Context, leases []outmill.Lease) error {
	return m.Abandon(ctx, delayedBy(0, "released", leases))
}

type extendsAll struct{ file }

func (m extendsAll) Extend(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	_, err := m.file.Extend(ctx, lease, leases)
	return leases, err
}

type parksNothing struct{ file }

func (m parksNothing) Fail(ctx context.Context, failures []outmill.Settlement) error {
	failures = slices.Clone(failures)
	for i := range failures {
		failures[i].Park = false
	}
	return m.file.Fail(ctx, failures)
}

type reapsAll struct{ file }

func (m reapsAll) ReapExpired(ctx context.Context, limit int) (int, error) {
	return m.file.ReapExpired(ctx, 1000*limit)
}

// forgetsWaiting deletes what a registration would take in.
type forgetsWaiting struct{ file }

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
	return m.file.RegisterGroup(ctx, regs...)
}

// registers makes mutants that register otherwise than they were asked to.
func registers(change func(*outmill.Registration)) func(file) outmill.Store {
	return func(f file) outmill.Store { return registersOtherwise{f, change} }
}

type registersOtherwise struct {
	file
	change func(*outmill.Registration)
}

func (m registersOtherwise) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	for i := range regs {
		m.change(&regs[i])
	}
	return m.file.RegisterGroup(ctx, regs...)
}

// lastCallWins: a TTL replaces that of a permanent registration.
type lastCallWins struct{ file }

func (m lastCallWins) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	for _, reg := range regs {
		if reg.TTL == 0 {
			continue
		}
		if _, err := m.DB().ExecContext(ctx, `UPDATE outmill_groups SET expires_at = 0 WHERE grp = ? AND expires_at IS NULL`, reg.Group); err != nil {
			return err
		}
	}
	return m.file.RegisterGroup(ctx, regs...)
}

type expiresNothing struct{ file }

func (m expiresNothing) ExpireRegistrations(context.Context, int) (registrations, records int, err error) {
	return 0, 0, nil
}

// dropsEnded: an end takes the whole group.
type dropsEnded struct{ file }

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
				registrations, records = registrations+1, records+n
			}
		}
	}
	return registrations, records, nil
}

type dropsLeased struct{ file }

func (m dropsLeased) ExpireRegistrations(ctx context.Context, limit int) (registrations, records int, err error) {
	if _, err := m.DB().ExecContext(ctx, `UPDATE outmill_records SET available_at = 0 WHERE stage = 4`); err != nil {
		return 0, 0, err
	}
	return m.file.ExpireRegistrations(ctx, limit)
}

// looksOnce forgets the groups of which registrations have ended.
type looksOnce struct{ file }

func (m looksOnce) ExpireRegistrations(ctx context.Context, limit int) (registrations, records int, err error) {
	if registrations, records, err = m.file.ExpireRegistrations(ctx, limit); err == nil {
		_, err = m.DB().ExecContext(ctx, `DELETE FROM outmill_endings`)
	}
	return registrations, records, err
}

type expiresAll struct{ file }

func (m expiresAll) ExpireRegistrations(ctx context.Context, limit int) (registrations, records int, err error) {
	return m.file.ExpireRegistrations(ctx, 1000*limit)
}

// renewsInVain: an end that has passed stands, whatever comes before the janitor.
type renewsInVain struct{ file }

func (m renewsInVain) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	if _, _, err := m.ExpireRegistrations(ctx, 1000); err != nil {
		return err
	}
	return m.file.RegisterGroup(ctx, regs...)
}

type countsAll struct{ file }

func (m countsAll) Stats(ctx context.Context, _ int) ([]outmill.TopicStats, error) {
	return m.file.Stats(ctx, 0)
}

type silent struct{ file }

func (m silent) Wake(context.Context, func(topic string)) {}

type staysOpen struct{ file }

func (m staysOpen) Close() error { return nil }

type ignoresContexts struct{ file }

func (m ignoresContexts) Release(ctx context.Context, leases []outmill.Lease) error {
	return m.file.Release(context.WithoutCancel(ctx), leases)
}

// dropsReleases acks instead of every third release.
type dropsReleases struct {
	file
	n atomic.Int64
}

func (m *dropsReleases) Release(ctx context.Context, leases []outmill.Lease) error {
	if m.n.Add(1)%3 == 0 {
		return m.Ack(ctx, "", leases)
	}
	return m.file.Release(ctx, leases)
}
