package forwarder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/batching"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/janitor"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// Forwarder moves records from a store to a publisher. It closes neither. Its
// methods may be called concurrently.
type Forwarder struct {
	queue outmill.Queue
	// publisher is for its limit of sizes; send publishes.
	publisher message.Publisher
	send      sender
	// raw publishes records without messages; nil if the publisher cannot, or if hooks need messages. whole: see worker.Config.
	raw   func(ctx context.Context, batch []roles.RawRecord) error
	whole func() bool
	cfg   Config
	// mostBatch is the largest number of records of one claim and one publish.
	mostBatch int
	log       watermill.LoggerAdapter
	fails     worker.Faults
	// pinger is nil if the publisher cannot ask its destination. reached says that what waits for a first
	// group may be taken: see destination.go.
	pinger  storekit.Pinger
	reached atomic.Bool
	// janitor is nil if UpkeepInterval leaves the maintenance of the store to others.
	janitor *janitor.Janitor
	// announce logs the mode of publishing, once.
	announce func()

	running chan struct{}
	// life ends with Close.
	life context.Context
	end  context.CancelFunc

	mu     sync.Mutex
	closed bool
	// began says that Run was called; current is its pass after the registration.
	began   bool
	current *pass
	// latest is the pass of Run, also before the registration.
	latest *pass
	passes sync.WaitGroup
}

// New makes a forwarder. A nil logger logs nothing. The forwarder reads and publishes
// nothing before Run, Once, or the start of a router that it was added to.
func New(queue outmill.Queue, publisher message.Publisher, cfg Config, logger watermill.LoggerAdapter) (*Forwarder, error) {
	if outmill.IsNil(queue) {
		return nil, fmt.Errorf("%w: forwarder.New: the store is nil", outmill.ErrInvalidConfig)
	}
	if outmill.IsNil(publisher) {
		return nil, fmt.Errorf("%w: forwarder.New: the publisher is nil", outmill.ErrInvalidConfig)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	mostBatch := cfg.mostBatch(queue)
	cfg.setDefaults()
	mode := modeOf(publisher)
	f := &Forwarder{
		queue: queue, publisher: publisher,
		send: newSender(mode, publisher, cfg), raw: rawOf(mode, cfg),
		cfg: cfg, mostBatch: mostBatch,
		log:     storekit.LogWith(logger, watermill.LogFields{"store": queue.Name(), "group": cfg.Group}),
		running: make(chan struct{}),
		pinger:  batching.PingerOf(publisher),
	}
	if f.raw != nil && cfg.KeyPolicy != outmill.KeyPark {
		f.whole = func() bool { return true }
	}
	f.reached.Store(f.pinger == nil)
	f.fails = worker.Faults{Log: f.log, Of: "forwarder", OnError: cfg.OnError}
	f.announce = sync.OnceFunc(func() { mode.log(f.log, publisher, cfg.Lanes) })
	if cfg.UpkeepInterval > 0 {
		var err error
		if f.janitor, err = janitor.New(queue, janitor.Config{Interval: cfg.UpkeepInterval, OnError: f.fails.Tell}, logger); err != nil {
			return nil, err
		}
	}
	f.life, f.end = context.WithCancel(context.Background())
	return f, nil
}

// largest returns the size of the largest message that the publisher can take, which a broker may tell only once it is
// connected; nil is unknown. Config.Transform may make messages smaller.
func (f *Forwarder) largest() func() int {
	if f.cfg.Transform != nil {
		return nil
	}
	return func() int { return batching.LargestOf(f.publisher) }
}

// Run forwards until ctx ends, Close is called or the store closes, and then returns nil. The
// store's Close waits until the publish in progress has ended and its acks are stored, at most for
// storekit.LeaveTimeout. Run returns an error if it cannot begin; then it may be called again.
// Otherwise a forwarder runs only once.
func (f *Forwarder) Run(ctx context.Context) error {
	p, err := f.start(ctx)
	if p == nil {
		return err
	}
	f.run(p)
	return nil
}

// Running is closed when the forwarder has begun to forward.
func (f *Forwarder) Running() chan struct{} { return f.running }

// Close stops Run and Once: it waits for the publish in progress, at most for CloseTimeout,
// stores the acks and releases the other records. It may be called more than once, and
// before Run, which then returns an error.
func (f *Forwarder) Close() error {
	f.mu.Lock()
	f.closed = true
	f.end()
	f.mu.Unlock()
	f.passes.Wait()
	return nil
}

// Once forwards the due records and returns the number of published messages when all are
// settled. If the broker is unavailable, it releases the records that were not delivered
// and returns an error. If the broker refuses a topic, Once forwards the other topics
// before it returns an error. While Run is running, Once waits for Run to forward the
// records; otherwise it forwards them itself.
func (f *Forwarder) Once(ctx context.Context) (int, error) {
	f.mu.Lock()
	running := f.current
	f.mu.Unlock()
	if running == nil {
		return f.onceAlone(ctx)
	}
	before := running.published()
	err := running.drain(ctx)
	return running.published() - before, err
}

func (f *Forwarder) onceAlone(ctx context.Context) (int, error) {
	if err := f.enter(); err != nil {
		return 0, err
	}
	defer f.passes.Done()
	p := f.newPass(ctx)
	defer p.end()
	if err := f.register(p.ctx, p.flow); err != nil {
		return 0, f.orClosed(err)
	}
	if err := f.reach(p.ctx, p.flow); err != nil {
		return 0, f.orClosed(fmt.Errorf("outmill: forwarder group %q: %w", f.cfg.Group, err))
	}
	f.tidy(p.ctx)
	var forwarding sync.WaitGroup
	forwarding.Go(p.forward)
	err := p.drain(ctx)
	p.stop()
	forwarding.Wait()
	return p.published(), err
}

// start makes the pass of Run. It returns nil and no error if ctx or Close ended the pass
// before it began.
func (f *Forwarder) start(ctx context.Context) (*pass, error) {
	if err := f.beginRun(); err != nil {
		return nil, err
	}
	p := f.newPass(ctx)
	f.mu.Lock()
	f.latest = p
	f.mu.Unlock()
	if err := f.registerFirst(p.ctx, p.flow); err != nil {
		defer f.passes.Done()
		f.mu.Lock()
		f.began = false
		f.mu.Unlock()
		if p.ctx.Err() != nil {
			err = nil
		}
		p.end()
		return nil, err
	}
	f.mu.Lock()
	f.current = p
	f.mu.Unlock()
	close(f.running)
	return p, nil
}

func (f *Forwarder) beginRun() error {
	if err := f.enter(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.began {
		f.passes.Done()
		return errors.New("outmill: forwarder: Run was called before; make a new forwarder")
	}
	f.began = true
	return nil
}

// enter adds to passes, unless the forwarder is closed.
func (f *Forwarder) enter() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fmt.Errorf("outmill: forwarder: %w", outmill.ErrClosed)
	}
	f.passes.Add(1)
	return nil
}

func (f *Forwarder) run(p *pass) {
	defer f.passes.Done()
	defer p.end()
	var upkeep sync.WaitGroup
	upkeep.Go(func() { f.keepUp(p.ctx, p.flow) })
	upkeep.Go(func() { f.reportProblems(p.ctx, p.flow) })
	upkeep.Go(func() { p.failing.Report(p.ctx, func(ctx context.Context) error { return f.register(ctx, p.flow) }) })
	upkeep.Go(func() {
		p.flow.worker.Repeats().Report(p.ctx, func(ctx context.Context) error { return f.register(ctx, p.flow) })
	})
	p.forward()
	upkeep.Wait()
	p.sayStopped()
}

// orClosed returns ErrClosed if the close of the forwarder caused err.
func (f *Forwarder) orClosed(err error) error {
	if f.life.Err() != nil {
		return fmt.Errorf("outmill: forwarder: %w", outmill.ErrClosed)
	}
	return err
}

// register registers the group, and reports the problems of the pass.
func (f *Forwarder) register(ctx context.Context, fl *flow) error {
	reg := outmill.Registration{Group: f.cfg.Group, Topics: f.cfg.Topics, Worker: f.cfg.Worker, Problems: fl.problems(),
		Failing: fl.failing.ToRegister(), Handling: fl.presence.Handling(), Hold: !f.reached.Load(),
		Reads: worker.Reads(f.queue, f.cfg.Group, f.cfg.Worker)}
	began := time.Now()
	err := worker.Register(ctx, f.queue, reg)
	fl.failing.Note(ctx, storekit.CallRegister, "", began, err)
	if err != nil {
		return fmt.Errorf("outmill: forwarder group %q: %w", f.cfg.Group, err)
	}
	return nil
}

// registerFirst registers the group, and tries again like a claim while the store cannot: its disk may
// be full, or its server may be restarting. It returns an error that no retry helps.
func (f *Forwarder) registerFirst(ctx context.Context, fl *flow) error {
	trouble := storekit.NewWaits(100*time.Millisecond, f.cfg.MaxErrorBackoff)
	for {
		err := f.register(ctx, fl)
		if err == nil || ctx.Err() != nil || slices.ContainsFunc(noRetry, func(target error) bool { return errors.Is(err, target) }) {
			return err
		}
		pause := trouble.Next()
		f.fails.Fault("Registration failed, will try again", err, watermill.LogFields{"after": pause.String()})
		if storekit.Pause(ctx, pause) != nil {
			return err
		}
	}
}

// noRetry are the errors of a registration that the program or its operator must mend.
var noRetry = []error{
	outmill.ErrInvalidConfig, outmill.ErrInvalidRecord, outmill.ErrClosed,
	outmill.ErrSchemaMissing, outmill.ErrSchemaOutdated, outmill.ErrSchemaNewer,
}

// keepUp does the upkeep until ctx ends. It renews the group's registration even if
// UpkeepInterval leaves the maintenance of the store to other processes.
func (f *Forwarder) keepUp(ctx context.Context, fl *flow) {
	if f.janitor != nil {
		var tidied sync.WaitGroup
		tidied.Go(func() { _ = f.janitor.Run(ctx) }) // It returns an error only after its Close.
		defer tidied.Wait()
	}
	worker.Rounds(ctx, f.renewInterval(), f.log, func(ctx context.Context) error { return f.round(ctx, fl) })
}

// round renews the registration, and warns of topics with records that no group reads, and of
// workers that read in another order. Its caller logs its error.
func (f *Forwarder) round(ctx context.Context, fl *flow) error {
	err := f.register(ctx, fl)
	if f.reached.Load() {
		// Before, records wait for this group.
		began := time.Now()
		unread := worker.WarnUnread(ctx, f.queue, f.log, f.cfg.Group, f.cfg.Topics.Match, f.renewInterval())
		fl.failing.Note(ctx, storekit.CallUpkeep, worker.UnreadPart, began, unread)
		began = time.Now()
		differ := fl.presence.WarnReads(ctx, f.log)
		fl.failing.Note(ctx, storekit.CallUpkeep, worker.ReadsPart, began, differ)
		err = errors.Join(err, unread, differ)
	}
	if err != nil && ctx.Err() == nil {
		f.fails.Tell(fmt.Errorf("upkeep of the registration: %w", err))
	}
	return err
}

// renewInterval is the time between two rounds.
func (f *Forwarder) renewInterval() time.Duration {
	if f.cfg.UpkeepInterval < 0 {
		return defaultUpkeepInterval
	}
	return f.cfg.UpkeepInterval
}

// tidy only logs errors, because the maintenance of the store is not the purpose of Once.
func (f *Forwarder) tidy(ctx context.Context) {
	if f.janitor == nil {
		return
	}
	if _, err := f.janitor.RunOnce(ctx); err != nil && ctx.Err() == nil {
		f.fails.Fault("Upkeep of the store failed", err, nil)
	}
}
