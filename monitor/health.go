package monitor

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Health checks one store. Its methods may be called concurrently.
type Health struct {
	store  outmill.Inspector
	config HealthConfig

	mu     sync.Mutex
	report Report
	until  time.Time // The handler repeats report until then.
	dead   deadCount
}

// NewHealth returns the checks of a store. It calls the store only when somebody asks, and does
// not close it. It returns ErrInvalidConfig for a setting below zero and for no store.
func NewHealth(store outmill.Inspector, config HealthConfig) (*Health, error) {
	if outmill.IsNil(store) {
		return nil, storekit.InvalidConfig("NewHealth: the store is nil: pass an open store")
	}
	if err := config.check(); err != nil {
		return nil, err
	}
	return &Health{store: store, config: config.withDefaults()}, nil
}

// Check asks the store now, with one call of Stats and one of Groups, and returns what it finds. It ends
// after HealthConfig.Timeout. If ctx ends first, it returns the error of ctx, because the store may be
// well. If some of several stores fail, such as tenants of a tenants.Set, each is a warning, and the rest
// of the report is about the others, without dead_rising.
//
// dead_rising compares counts that end at 10,000 for each group and topic: more dead records than that do
// not raise it.
func (h *Health) Check(ctx context.Context) (Report, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.check(ctx)
}

func (h *Health) check(ctx context.Context) (Report, error) {
	stats, groups, err := h.count(ctx)
	if err != nil && ctx.Err() != nil {
		return Report{}, fmt.Errorf("outmill: health: %w", ctx.Err())
	}
	report := Report{Store: h.config.Name, Problems: []Problem{}}
	now := time.Now()
	if err != nil {
		report.Problems = append(report.Problems, some(problemsOf(err), "stores")...)
	} else {
		// The dead records of a store that answers again would seem to be new.
		report.Problems = append(report.Problems, h.dying(now, stats)...)
	}
	if !storekit.NoneAnswered(err) {
		report.Problems = append(report.Problems, h.late(now, stats)...)
		report.Problems = append(report.Problems, some(tally{stats, groups, now}.unseen(h.config.Unseen), "groups")...)
	}
	report.Problems = append(report.Problems, h.stuck(time.Now())...)
	report.Problems = append(report.Problems, h.failing(time.Now())...)
	report.Status = statusOf(report.Problems)
	return report, nil
}

// count returns what the store has, and with an error of some of several stores what the others have.
// If one of them has used up the time, there are no groups.
func (h *Health) count(ctx context.Context) (stats []outmill.TopicStats, groups []outmill.GroupInfo, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.config.Timeout)
	defer cancel()
	stats, err = h.store.Stats(ctx, 0)
	if err != nil && (ctx.Err() != nil || !storekit.SomeAnswered(err)) {
		return stats, nil, err
	}
	if writer, ok := outmill.As[storekit.WriteChecker](h.store); ok && err == nil {
		if err := writer.CheckWrites(ctx); err != nil {
			return stats, nil, err
		}
	}
	groups, groupsErr := h.store.Groups(ctx)
	if storekit.NoneAnswered(groupsErr) && ctx.Err() == nil {
		return stats, nil, groupsErr
	}
	return stats, groups, cmp.Or(err, groupsErr)
}

// cached repeats the last report while it is fresh. The check outlives the request that
// started it, so that a probe that hangs up does not make the store look unreachable to others.
func (h *Health) cached(ctx context.Context) Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Now().Before(h.until) {
		return h.report
	}
	// A context that never ends causes no error.
	h.report, _ = h.check(context.WithoutCancel(ctx))
	h.until = time.Now().Add(h.config.CacheFor)
	return h.report
}
