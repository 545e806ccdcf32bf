package tenants

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// bound says how long a call of a member may take.
type bound int

const (
	// brief is Config.CallTimeout: for calls whose work is bounded. A member that takes longer hangs.
	brief bound = iota
	// long is longTimeouts times as long: for calls that may have much to do.
	long
	// waits is long for calls in transactions, which may wait for the locks of others. That is no sign
	// that the member hangs.
	waits
	// endless has no limit: for the user's function, and for the making of a schema. Like long and
	// waits, it ends when the member is found to hang.
	endless
)

const (
	// longTimeouts is the number of Config.CallTimeout that bounds a long call.
	longTimeouts = 6
	// slotsOf is the part of Config.CallTimeout for which a call keeps its place among Config.Parallel.
	slotsOf = 100
	// graceOfCalls is the longest time that a brief call has to return after the end of its context.
	graceOfCalls = 100 * time.Millisecond
)

// call is the only way to call the store of a member. The context of fn ends after the bound, because
// others may wait for fn. call does not call fn for a member that is known to hang. Its error names the
// member. TestSet_Bounds calls each method of the set while a member hangs.
func (s *Set) call(ctx context.Context, m *member, call string, b bound, fn func(ctx context.Context) error) (err error) {
	if err := m.hangs(); err != nil {
		return m.away(call, err)
	}
	defer m.noteCall(ctx, call, time.Now(), &err)
	ctx = storekit.CommandInMember(ctx, m.name())
	bounded := ctx
	if b != brief {
		var cancel context.CancelCauseFunc
		bounded, cancel = context.WithCancelCause(ctx)
		defer s.watch(bounded, m, cancel)()
	}
	if most := s.most(b); most > 0 {
		var stop context.CancelFunc
		bounded, stop = context.WithTimeoutCause(bounded, most, tooLate{most})
		defer stop()
	}
	err = s.inTime(bounded, m, b, fn)
	var late tooLate
	switch cause := context.Cause(bounded); {
	case err == nil || ctx.Err() != nil || cause == nil:
	case errors.As(cause, &late):
		err = m.away(call, fmt.Errorf("%w: %w", late, err))
		if b == brief || b == long {
			s.fault(m, err)
		}
	default:
		err = m.away(call, fmt.Errorf("%w: %w", cause, err))
	}
	return m.failed(call, err)
}

// inTime calls fn. It does not wait for a brief call whose time is over: some stores clean up for seconds
// after the end of a context. So fn of a brief call must write to nothing that its caller reads after an
// error.
func (s *Set) inTime(ctx context.Context, m *member, b bound, fn func(ctx context.Context) error) error {
	s.mu.RLock()
	if b != brief || s.life.Closed() {
		s.mu.RUnlock()
		return fn(ctx)
	}
	ended := make(chan error, 1)
	m.begin()
	s.background.Go(func() {
		defer m.done()
		ended <- fn(ctx)
	})
	s.mu.RUnlock()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(min(s.cfg.CallTimeout/slotsOf, graceOfCalls))
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return ctx.Err()
	}
}

// most is the time of a bound; 0 is no limit.
func (s *Set) most(b bound) time.Duration {
	switch b {
	case brief:
		return s.cfg.CallTimeout
	case long, waits:
		return longTimeouts * s.cfg.CallTimeout
	case endless:
	}
	return 0
}

// tooLate is the error of a call that took longer than its bound.
type tooLate struct{ after time.Duration }

func (e tooLate) Error() string        { return fmt.Sprintf("no answer within %s", e.after) }
func (e tooLate) Is(target error) bool { return target == context.DeadlineExceeded }

// watch asks a member, each CallTimeout, whether it answers, while a call of it is under way that may
// take longer. If it does not, the call is canceled: what it waits for does not come. The function that
// watch returns ends that, and waits until it has ended.
func (s *Set) watch(ctx context.Context, m *member, cancel context.CancelCauseFunc) (end func()) {
	var mu sync.Mutex
	ended := false
	var timer *time.Timer
	// A busy machine may call the function before AfterFunc has returned the timer that it uses.
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(s.cfg.CallTimeout, func() {
		mu.Lock()
		defer mu.Unlock()
		if ended || ctx.Err() != nil {
			return
		}
		if err := s.answers(ctx, m); err != nil {
			cancel(err)
			return
		}
		timer.Reset(s.cfg.CallTimeout)
	})
	return func() {
		timer.Stop()
		cancel(nil)
		mu.Lock()
		defer mu.Unlock()
		ended = true
		timer.Stop()
	}
}

// answers returns an error if the member hangs. It asks for a record that does not exist, because a
// read waits for no lock, unless a call has asked a short time ago.
func (s *Set) answers(ctx context.Context, m *member) error {
	if m.hangs() == nil && m.askAgain(s.cfg.CallTimeout) {
		_ = s.call(ctx, m, "ask", brief, func(ctx context.Context) error {
			_, err := m.store.Get(ctx, outmill.WorkItemID(uuid.Max))
			return err
		})
	}
	return m.hangs()
}

// askAgain reports whether nobody has asked the member for so long, and then counts as asking.
func (m *member) askAgain(after time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if now.Sub(m.askedAt) < after {
		return false
	}
	m.askedAt = now
	return true
}

// failed names the member in an error, once.
func (m *member) failed(call string, err error) error {
	var in *MemberError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &in) && in.Member == m.name():
		return err
	}
	return &MemberError{Member: m.name(), Call: call, Err: err}
}

// away is the error of a call that the member did not answer.
func (m *member) away(call string, err error) error {
	if !errors.Is(err, storekit.ErrStoreAway) {
		err = fmt.Errorf("%w: %w", storekit.ErrStoreAway, err)
	}
	return m.failed(call, err)
}

// each calls fn for the members, Config.Parallel at a time, and returns the errors. It leaves out a
// member that is gone. Members that answer late hold up no others, but each waits for all of them.
func (s *Set) each(ctx context.Context, call string, b bound, members []*member,
	fn func(ctx context.Context, m *member) error) map[string]error {
	var mu sync.Mutex
	errs := map[string]error{}
	s.inParallel(len(members), func(i int) {
		m := members[i]
		if !s.reuse(m) {
			return
		}
		defer m.done()
		if err := s.call(ctx, m, call, b, func(ctx context.Context) error { return fn(ctx, m) }); err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs[m.name()] = err
		}
	})
	return errs
}

// inParallel calls fn for 0 to n-1, Config.Parallel at a time. A call that takes long gives its place to
// another one, so that members that hang take none from the others.
func (s *Set) inParallel(n int, fn func(i int)) {
	if n == 1 {
		fn(0)
		return
	}
	var wg sync.WaitGroup
	places := make(chan struct{}, s.cfg.Parallel)
	for i := range n {
		places <- struct{}{}
		wg.Go(func() {
			leave := sync.OnceFunc(func() { <-places })
			defer leave()
			timer := time.AfterFunc(s.cfg.CallTimeout/slotsOf, leave)
			defer timer.Stop()
			fn(i)
		})
	}
	wg.Wait()
}
