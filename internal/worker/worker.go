package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// Worker claims records and settles them. Make one with New, Start it, Take
// from it, then Stop and Close it. All methods may be called concurrently, and
// Stop and Close at any time.
type Worker struct {
	cfg    Config
	log    watermill.LoggerAdapter
	faults Faults

	claimers sync.WaitGroup
	rest     sync.WaitGroup
	stopped  chan struct{}

	// restEnded is closed when no outcome is stored any more.
	restEnded chan struct{}

	// One goroutine waits on each of these channels; each holds at most one signal.
	roomSignal   chan struct{}
	busySignal   chan struct{}
	settleSignal chan struct{}
	poke         chan struct{}

	woken   *woken
	repeats *Repeats
	failing *Failing
	// inbox is nil if the store has none.
	inbox roles.Inbox
	// pauses is nil if the store has no pauses.
	pauses roles.Pauses
	// claimRaw claims; see claimsOf.
	claimRaw roles.RawClaims

	mu sync.Mutex
	// owner is the owner of the next claim; each item has the owner of its own lease.
	owner outmill.OwnerToken
	items map[outmill.WorkItemID]*Item
	// feeds are the feeds by topic. A worker that is not ByTopic has one feed, with the topic
	// "". include selects the topics of all feeds.
	feeds   map[string]*Feed
	include []string
	// tenants are the records of each tenant, by topic, if their number is limited.
	tenants map[string]*tenants
	// claims counts all claims; claiming has the numbers of those in progress.
	claims   int
	claiming map[int]struct{}
	// keys has the unsettled items of each key, in order.
	keys map[string][]*Item
	// tainted are the keys of records that were released since the last claim began: if that
	// claim returns records of these keys, they are released too, to keep the order.
	tainted  map[string]struct{}
	outcomes []outcome
	// batches are those of which the store has no outcome, in the order of their claims. They have inBatches records. acked are those of them
	// that wait for a flush, with ackedN records.
	batches           []*Batch
	acked             []*Batch
	inBatches, ackedN int
	// sources are the stores that records have come from.
	sources  map[string]*source
	flushing int
	// removed is closed when an item is removed; nil while nobody waits for that.
	removed chan struct{}
	topics  outmill.Topics
	limit   int
	// hearsOthers: the store wakes for the commits of other processes, too.
	hearsOthers bool
	// changes counts the changes of topics, feeds and limit.
	changes int
	growth  growth
	// rounds counts the finished claims; roundDone is closed after each.
	rounds    int
	lastEmpty bool
	lastErr   error
	// claimedAt is the end of the last claim that succeeded, or the start.
	claimedAt time.Time
	roundDone chan struct{}
	settledN  int
	// paused are the pauses that the worker has heeded.
	paused *roles.PauseList

	stopClaiming context.CancelFunc
	stopRest     context.CancelFunc
	stopping     bool
	closing      bool
	// over says that restEnded is closed.
	over bool
}

// New makes a worker. It makes no call to the store before Start.
func New(cfg Config) *Worker {
	w := &Worker{
		cfg:          cfg,
		owner:        outmill.NewOwnerToken(),
		log:          storekit.LogWith(cfg.Logger, watermill.LogFields{"store": cfg.Queue.Name(), "group": cfg.Group}),
		restEnded:    make(chan struct{}),
		roomSignal:   make(chan struct{}, 1),
		busySignal:   make(chan struct{}, 1),
		settleSignal: make(chan struct{}, 1),
		poke:         make(chan struct{}, 1),
		woken:        newWoken(),
		repeats:      cfg.Repeats,
		failing:      cfg.Failing,
		pauses:       pausesOf(cfg.Queue),
		claimRaw:     claimsOf(cfg),
		feeds:        map[string]*Feed{},
		tenants:      map[string]*tenants{},
		items:        map[outmill.WorkItemID]*Item{},
		claiming:     map[int]struct{}{},
		keys:         map[string][]*Item{},
		sources:      map[string]*source{},
		tainted:      map[string]struct{}{},
		roundDone:    make(chan struct{}),
		stopped:      make(chan struct{}),
		topics:       cfg.Topics,
		limit:        cfg.BatchSize,
	}
	if w.repeats == nil {
		w.repeats = NewRepeats()
	}
	if w.failing == nil {
		w.failing = &Failing{}
	}
	w.faults = Faults{Log: w.log, Of: fmt.Sprintf("group %q", cfg.Group), OnError: cfg.OnError}
	w.inbox, _ = outmill.As[roles.Inbox](cfg.Queue)
	if waker, ok := outmill.As[roles.Waker](cfg.Queue); ok {
		w.hearsOthers = waker.HearsOthers()
	}
	if !cfg.ByTopic {
		w.feeds[""] = w.newFeed("", "")
		w.woken.reads(cfg.Topics.Matcher())
	}
	return w
}

// Start begins to claim. The calls to the store use the values of ctx; the end of ctx stops
// the claiming, like Stop. A worker starts once, and not after Stop.
func (w *Worker) Start(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopping || w.stopClaiming != nil {
		return
	}
	claimCtx, stopClaiming := context.WithCancel(ctx)
	restCtx, stopRest := context.WithCancel(context.WithoutCancel(ctx))
	w.stopClaiming, w.stopRest = stopClaiming, stopRest
	w.claimedAt = time.Now()
	w.claimers.Go(func() { w.claimLoop(claimCtx) })
	// Two claims at once would not know what the other one returns of a tenant.
	if !w.ordered() && w.cfg.MaxPerTenant == 0 {
		w.claimers.Go(func() { w.assistLoop(claimCtx) })
	}
	w.rest.Go(func() { w.keepLoop(restCtx) })
	w.rest.Go(func() { w.settleLoop(restCtx) })
}

// Take takes items of a worker that is not ByTopic. See Feed.Take.
func (w *Worker) Take(ctx context.Context, limit int) ([]*Item, error) {
	return w.feeds[""].Take(ctx, limit)
}

// TakeBatches is Take for a worker with Config.Whole. It returns either items or batches.
func (w *Worker) TakeBatches(ctx context.Context, limit int) ([]*Item, []*Batch, error) {
	got, err := w.feeds[""].await(ctx, limit)
	return got.items, got.batches, err
}

func (w *Worker) begin(it *Item, now time.Time) {
	it.state = taken
	it.handling = w.cfg.Running.begin(it, now)
	if !w.cfg.AwaitStart {
		it.startedAt = now
	}
}

// Stop ends the claiming and releases items that were not taken. It returns when no claim
// is in progress. The caller must still settle the items that it took.
func (w *Worker) Stop() {
	w.mu.Lock()
	if !w.stopping {
		w.stopping = true
		close(w.stopped)
	}
	if w.stopClaiming != nil {
		w.stopClaiming()
	}
	w.mu.Unlock()
	w.claimers.Wait()
	w.releaseWhere(func(*Item) bool { return true })
}

// Close calls Stop, waits until all outcomes are stored, at most until ctx ends, and then
// ends the worker. It counts the answers of users too that are not settled yet: see
// Item.Answers. Records of items that were taken and never settled stay leased until their
// leases end.
func (w *Worker) Close(ctx context.Context) error {
	w.Stop()
	w.mu.Lock()
	w.closing = true
	stopRest := w.stopRest
	w.mu.Unlock()
	if stopRest == nil {
		return nil
	}
	w.releaseSuccessors()
	err := w.waitStored(ctx, w.allStored)
	stopRest()
	w.rest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.over = true
		close(w.restEnded)
	}
	return err
}

// Leave is Close for a store that is about to close. Then it gives up the items whose
// handlers still run, because nothing can extend or settle their leases any more.
func (w *Worker) Leave(ctx context.Context) error {
	err := w.Close(ctx)
	w.loseAll()
	return err
}

// Repeats are the records that come back without an attempt.
func (w *Worker) Repeats() *Repeats { return w.repeats }

// Settled returns the number of items settled so far, without those that were released.
func (w *Worker) Settled() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.settledN
}

// ClaimedAt is the end of the last claim that succeeded, or the start of the worker; zero before
// the start.
func (w *Worker) ClaimedAt() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.claimedAt
}

// Poke makes the worker claim at once.
func (w *Worker) Poke() {
	w.mu.Lock()
	w.lookAtOnce()
	w.mu.Unlock()
}

// lookAtOnce makes the next claim cover all feeds with room.
func (w *Worker) lookAtOnce() {
	now := time.Now()
	for _, f := range w.feeds {
		f.look.soon(now)
		f.look.goOn()
	}
	signal(w.poke)
}

// WaitEmpty returns when the worker holds no item any more, because each outcome is stored,
// each other lease is lost, or the store is closed, or when Close has ended the worker.
func (w *Worker) WaitEmpty(ctx context.Context) {
	ticker := time.NewTicker(min(w.watch(), time.Second))
	defer ticker.Stop()
	for {
		w.mu.Lock()
		held, removed := w.held(), w.nextRemoval()
		w.mu.Unlock()
		if held == 0 {
			return
		}
		select {
		case <-removed:
		case <-w.restEnded:
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.noticeClosed(ctx)
		}
	}
}

// noticeClosed gives up all items if the store was closed. Extending an empty list of
// leases costs no round trip.
func (w *Worker) noticeClosed(ctx context.Context) {
	if _, err := w.cfg.Queue.Extend(ctx, w.cfg.Lease, nil); errors.Is(err, outmill.ErrClosed) {
		w.loseAll()
	}
}

// SetTopics changes the topics of further claims, and releases items of other topics that
// were not taken yet.
func (w *Worker) SetTopics(topics outmill.Topics) {
	w.mu.Lock()
	w.topics = topics
	w.changes++
	w.mu.Unlock()
	w.woken.reads(topics.Matcher())
	w.releaseWhere(func(it *Item) bool { return !topics.Match(it.Record.Topic) })
	w.Poke()
}

// SetLimit changes the number of records of further claims. A limit below the batch size
// also limits the items in flight (1 is for a probe, 0 pauses), and SetLimit then releases
// the items that were not taken.
func (w *Worker) SetLimit(limit int) {
	w.mu.Lock()
	w.limit = limit
	w.changes++
	w.mu.Unlock()
	if limit < w.cfg.BatchSize {
		w.releaseWhere(func(*Item) bool { return true })
	}
	signal(w.roomSignal)
	w.Poke()
}

// signal never blocks, because a signal that is already in the channel has the same effect.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
