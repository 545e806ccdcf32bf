package tenants

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// Set is an outmill.Store of many: see the package comment. It also has the roles of package
// roles; a call for which the member's store lacks the role is a [RoleError]. It may be used
// concurrently.
type Set struct {
	cfg    Config
	log    watermill.LoggerAdapter
	faults worker.Faults
	life   storekit.Lifecycle
	// ctx ends when the set is closed.
	ctx        context.Context
	stop       context.CancelFunc
	background sync.WaitGroup
	notifier   storekit.Notifier
	// repeated knows whether the discovery fails.
	repeated storekit.CallLog
	// refreshing serialises refreshes, refreshed tells the loop of one on demand.
	refreshing sync.Mutex
	refreshed  chan struct{}

	maintaining sync.Mutex
	// maintained are the members that this round of Maintain has still to serve.
	maintained []*member

	mu      sync.RWMutex
	members map[string]*member
	// all are the members by name, where it is not stale. It is replaced as a whole. version counts
	// the changes.
	all     []*member
	stale   bool
	version int
	// draining are members that were removed or swapped, by name.
	draining map[string][]*member
	// wanted is the last answer of the discovery, opening the errors of those that are not open.
	wanted    map[string]Tenant
	opening   map[string]error
	discovery DiscoveryStatus
	// known are the registrations, kinds the types of sagas.
	known   registrations
	kinds   map[string]struct{}
	waking  bool
	txLimit time.Duration

	// budget is nil if Config.MaxConnections sets none.
	budget    *storekit.ConnectionBudget
	listening listening

	pauses knownPauses

	// served: somebody has claimed, tidied or registered a group.
	served atomic.Bool

	readersMu sync.Mutex
	readers   map[string]*reader
	uses      int
}

var (
	_ outmill.Store    = (*Set)(nil)
	_ roles.Waker      = (*Set)(nil)
	_ roles.Transactor = (*Set)(nil)
	_ roles.Inbox      = (*Set)(nil)
	_ roles.Joins      = (*Set)(nil)
	_ roles.Sagas      = (*Set)(nil)
	_ roles.Members    = (*Set)(nil)

	_ storekit.Attacher = (*Set)(nil)
)

// New asks the discovery and opens the stores of its tenants. A store that cannot be opened is
// tried again while the others work: see [Set.Status]. A nil logger logs nothing. Close the set
// after what uses it. Errors: outmill.ErrInvalidConfig, the discovery's.
func New(ctx context.Context, cfg Config, logger watermill.LoggerAdapter) (*Set, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if outmill.IsNil(logger) {
		logger = watermill.NopLogger{}
	}
	cfg.setDefaults(logger)
	s := &Set{
		cfg:       cfg,
		log:       storekit.LogWith(logger, watermill.LogFields{"store": cfg.Name}),
		refreshed: make(chan struct{}, 1),
		members:   map[string]*member{},
		draining:  map[string][]*member{},
		opening:   map[string]error{},
		known:     registrations{},
		kinds:     map[string]struct{}{},
		readers:   map[string]*reader{},
	}
	s.pauses.members = map[*member]*roles.PauseList{}
	s.faults = worker.Faults{Log: s.log, Of: "tenants", OnError: cfg.OnError}
	if cfg.MaxConnections > 0 {
		s.budget = storekit.NewConnectionBudget(cfg.MaxConnections, cfg.CallTimeout/2, "tenants.Config.MaxConnections")
		s.listening.most = cfg.MaxConnections / 2
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	if err := s.discover(ctx); err != nil {
		s.stop()
		return nil, err
	}
	// What cannot be opened is reported, and tried again.
	_ = s.apply(ctx)
	s.background.Go(s.refreshLoop)
	if !cfg.WithoutRest {
		s.background.Go(s.restLoop)
	}
	if s.budget != nil {
		s.background.Go(s.listenLoop)
	}
	return s, nil
}

// Name identifies the set in logs. Records and deliveries have the names of the members.
func (s *Set) Name() string { return s.cfg.Name }

// Close has the workers of the set leave, ends the set, and closes the stores that it has opened.
func (s *Set) Close() error {
	if !s.life.End() {
		return nil
	}
	s.giveBackAnswers()
	// Who has seen under the lock that the set was open has made its member by now.
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.notifier.Close()
	s.background.Wait()
	s.mu.Lock()
	members, _ := s.list()
	s.all, s.members = nil, map[string]*member{}
	s.mu.Unlock()
	errs := make([]error, len(members))
	s.inParallel(len(members), func(i int) { errs[i] = members[i].close() })
	return errors.Join(errs...)
}

// Attach adds a worker that leaves before the set and its members close. See storekit.Attacher.
func (s *Set) Attach(leave func(ctx context.Context)) (detach func(), err error) {
	return s.life.Attach(leave)
}

// Keys returns the keys of the tenants whose stores are open, sorted.
func (s *Set) Keys() []string {
	members := s.snapshot()
	keys := make([]string, len(members))
	for i, m := range members {
		keys[i] = m.name()
	}
	return keys
}

// snapshot returns the members by name. They may be closed by now: see use.
func (s *Set) snapshot() []*member {
	members, _ := s.current()
	return members
}

// current returns the members and their version.
func (s *Set) current() ([]*member, int) {
	s.mu.RLock()
	members, version, stale := s.all, s.version, s.stale
	s.mu.RUnlock()
	if !stale {
		return members, version
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list()
}

// use returns the member of that name, and what ends its use: it is not closed before.
func (s *Set) use(name string) (*member, func(), error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	m := s.members[name]
	if m == nil {
		return nil, nil, &UnknownTenantError{Key: name, Err: s.opening[name]}
	}
	m.begin()
	return m, m.done, nil
}

// reuse begins a call of a member that was found before, unless it is gone.
func (s *Set) reuse(m *member) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.members[m.name()] != m && !slices.Contains(s.draining[m.name()], m) {
		return false
	}
	m.begin()
	return true
}

// reuseReady begins a claim, which only a member takes that does not drain.
func (s *Set) reuseReady(m *member) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.members[m.name()] != m || !m.claimable() {
		return false
	}
	m.begin()
	return true
}

// joined returns the errors of members as one.
func joined(errs map[string]error) error {
	list := make([]error, 0, len(errs))
	for _, name := range slices.Sorted(maps.Keys(errs)) {
		list = append(list, errs[name])
	}
	return errors.Join(list...)
}

// bestEffort reports the errors of members, and returns them only where no member succeeded.
func (s *Set) bestEffort(ctx context.Context, asked int, errs map[string]error) error {
	if len(errs) == 0 {
		return nil
	}
	if len(errs) == asked || ctx.Err() != nil {
		return joined(errs)
	}
	for name, err := range errs {
		s.report("A call failed in a member, the others go on", name, err)
	}
	return nil
}

// report tells of an error that no caller gets.
func (s *Set) report(text, member string, err error) {
	if s.life.Closed() {
		return
	}
	s.faults.InStore(member).Fault(text, err, nil)
}
