package tenants_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/memstore"
	"github.com/outmill/outmill/tenants"
)

const (
	topic = "orders"
	// soon is long enough for anything that is going to happen, on a busy machine.
	soon = 2 * time.Minute
	tick = 2 * time.Millisecond
	// patient is a CallTimeout with which a claim waits for all members, on a busy machine too.
	patient = 20 * time.Minute
)

var errAway = errors.New("the database is away")

// spy is a member's store that counts calls, and fails those that it is told to.
type spy struct {
	*memstore.Store
	db *memstore.Database

	mu     sync.Mutex
	calls  map[string]int
	faults map[string]error
	claims []outmill.ClaimRequest
	closed bool
}

func newSpy(t *testing.T, name string) *spy {
	db := memstore.NewDatabase()
	s := &spy{Store: memstore.New(db, memstore.Options{Name: name}), db: db, calls: map[string]int{}, faults: map[string]error{}}
	require.NoError(t, s.Ensure(t.Context()))
	t.Cleanup(func() { _ = s.Store.Close() })
	return s
}

// fail has a call fail; nil heals it.
func (s *spy) fail(call string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[call] = err
}

func (s *spy) called(call string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[call]
}

func (s *spy) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// owners are those of all claims.
func (s *spy) owners() []outmill.OwnerToken {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]outmill.OwnerToken, len(s.claims))
	for i, req := range s.claims {
		list[i] = req.Owner
	}
	return list
}

func (s *spy) enter(call string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[call]++
	return s.faults[call]
}

func (s *spy) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	s.mu.Lock()
	s.claims = append(s.claims, req)
	s.mu.Unlock()
	if err := s.enter("Claim"); err != nil {
		return nil, err
	}
	return s.Store.Claim(ctx, req)
}

func (s *spy) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	if err := s.enter("Ack"); err != nil {
		return err
	}
	return s.Store.Ack(ctx, by, leases)
}

func (s *spy) Extend(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	if err := s.enter("Extend"); err != nil {
		return nil, err
	}
	return s.Store.Extend(ctx, lease, leases)
}

func (s *spy) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	if err := s.enter("RegisterGroup"); err != nil {
		return err
	}
	return s.Store.RegisterGroup(ctx, regs...)
}

func (s *spy) Stats(ctx context.Context, limit int) ([]outmill.TopicStats, error) {
	if err := s.enter("Stats"); err != nil {
		return nil, err
	}
	return s.Store.Stats(ctx, limit)
}

func (s *spy) ReapExpired(ctx context.Context, limit int) (int, error) {
	if err := s.enter("ReapExpired"); err != nil {
		return 0, err
	}
	return s.Store.ReapExpired(ctx, limit)
}

func (s *spy) Maintain(ctx context.Context) (bool, error) {
	return false, s.enter("Maintain")
}

func (s *spy) Get(ctx context.Context, id outmill.WorkItemID) (*outmill.Record, error) {
	if err := s.enter("Get"); err != nil {
		return nil, err
	}
	return s.Store.Get(ctx, id)
}

func (s *spy) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	return s.Store.Close()
}

// plain is a store without any of the roles of package storekit.
type plain struct{ outmill.Store }

func newPlain(t *testing.T, name string) *rig {
	return newRig(t, nil, func(c *tenants.Config) {
		c.Discovery = tenants.Static{{Key: name, Store: &plain{newSpy(t, name)}}}
	})
}

// rig is a set over members of these names, with DefaultGroup registered for all topics.
type rig struct {
	*testing.T
	set     *tenants.Set
	members map[string]*spy

	mu   sync.Mutex
	errs []error
}

func newRig(t *testing.T, names []string, change func(*tenants.Config)) *rig {
	t.Helper()
	r := &rig{T: t, members: map[string]*spy{}}
	var list tenants.Static
	for _, name := range names {
		r.members[name] = newSpy(t, name)
		list = append(list, tenants.Tenant{Key: name, Store: r.members[name]})
	}
	cfg := tenants.Config{Discovery: list, Linger: -1, CallTimeout: patient, OnError: func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.errs = append(r.errs, err)
	}}
	if change != nil {
		change(&cfg)
	}
	var err error
	r.set, err = tenants.New(t.Context(), cfg, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.set.Close()) })
	require.NoError(t, r.set.RegisterGroup(t.Context(), outmill.Registration{}))
	return r
}

// leavesOut requires that the set leaves a member out that fails, and returns how often it was called. The first pause is
// short, and a busy machine may need longer for what the set does in it, but the pauses grow.
func (r *rig) leavesOut(member, call string, do func()) (calls int) {
	r.Helper()
	const inOnePause = 5
	require.Eventually(r, func() bool {
		calls = r.members[member].called(call)
		for range inOnePause {
			do()
		}
		return r.members[member].called(call) == calls
	}, soon, tick)
	return calls
}

func (r *rig) reported() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.errs)
}

// append writes n records to a member, named member/0, member/1 and so on.
func (r *rig) append(member string, n int) []*outmill.Record {
	r.Helper()
	return r.appendBy(r.set, member, n)
}

// appendBy is append by the set, or by a store of the member, which waits for no registration and has no CallTimeout.
func (r *rig) appendBy(writer outmill.Writer, member string, n int) []*outmill.Record {
	r.Helper()
	records := make([]*outmill.Record, n)
	for i := range records {
		records[i] = &outmill.Record{MessageID: fmt.Sprintf("%s/%d", member, i), Topic: topic, TenantID: member}
		require.NoError(r, writer.Append(r.Context(), records[i]))
	}
	return records
}

// awaitOpen waits until the stores of n tenants are open. New does not wait for one that takes longer than a minute, on a busy
// machine, and opens it later.
func awaitOpen(t *testing.T, set *tenants.Set, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(set.Keys()) == n }, 2*soon, tick)
}

// refresh asks the discovery, again while a store cannot be opened in time.
func refresh(t *testing.T, set *tenants.Set) {
	t.Helper()
	require.Eventually(t, func() bool { return set.Refresh(t.Context()) == nil }, 2*soon, tick)
}

func request(limit int) outmill.ClaimRequest {
	return outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Limit: limit, Lease: time.Hour}
}

func (r *rig) claim(limit int) []*outmill.Record {
	r.Helper()
	found, err := r.set.Claim(r.Context(), request(limit))
	require.NoError(r, err)
	return found
}

func (r *rig) ack(records ...*outmill.Record) {
	r.Helper()
	leases := make([]outmill.Lease, len(records))
	for i, rec := range records {
		leases[i] = rec.Lease()
	}
	require.NoError(r, r.set.Ack(r.Context(), "test", leases))
}

func ids(records []*outmill.Record) []string {
	list := make([]string, len(records))
	for i, rec := range records {
		list[i] = rec.MessageID
	}
	return list
}

func perStore(records []*outmill.Record) map[string]int {
	counts := map[string]int{}
	for _, rec := range records {
		counts[rec.Store]++
	}
	return counts
}
