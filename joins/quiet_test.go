package joins_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/roles"
)

func TestQuiet(t *testing.T) {
	t.Parallel()

	t.Run("checking an undecided join is no error", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		log := journal.New()
		router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, log)
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
		require.Empty(t, log.Lines(watermill.ErrorLogLevel))
	})
}
