package joins_test

import (
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/roles"
)

// errorLog keeps the errors that are logged.
type errorLog struct {
	watermill.NopLogger
	mu   sync.Mutex
	said []string
}

func (l *errorLog) Error(msg string, err error, _ watermill.LogFields) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, msg)
}

func (l *errorLog) With(watermill.LogFields) watermill.LoggerAdapter { return l }

func (l *errorLog) errors() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.said...)
}

func TestQuiet(t *testing.T) {
	t.Parallel()

	t.Run("checking an undecided join is no error", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		log := &errorLog{}
		router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 5 * time.Second}, log)
		require.NoError(t, err)
		p.router = router
		// A PoisonQueue outside the handler's KeepError hides every error.
		poison, err := middleware.PoisonQueue(p.pub, "poison")
		require.NoError(t, err)
		p.router.AddMiddleware(poison)
		p.extract()
		completed := p.listen(transform)
		p.run(t, func(cfg *joins.Config) { cfg.Snooze = time.Millisecond })
		id := p.etl(t, of(1), nil)
		require.Eventually(t, func() bool {
			waits := p.records(t, joins.Topic, "")
			return len(waits) == 1 && waits[0].Claims > 5
		}, patience, tick)
		p.publishSteps(t, t.Context(), id, good)
		requireJoinOf(t, receive(t, completed), id, roles.JoinCompleted, "", "1", "1", "0")
		p.requireSettled(t, completed)
		require.Empty(t, log.errors())
	})
}
