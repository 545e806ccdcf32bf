package memdriver_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/memdriver"
)

// With Config.EnsureSchema the first call makes the schema and sets the fair topics, whatever call it is, but not in a caller's
// transaction. This holds for every driver, because the engine does it.
func TestEngine_EnsureSchema(t *testing.T) {
	t.Parallel()
	publish := func(ctx context.Context, s *engine.Engine) error {
		return s.Append(ctx, &outmill.Record{Topic: "orders", Payload: []byte("{}")})
	}
	for name, first := range map[string]func(ctx context.Context, s *engine.Engine) error{
		"Append": publish,
		"Ack": func(ctx context.Context, s *engine.Engine) error {
			return s.Ack(ctx, "w", []outmill.Lease{{ID: outmill.NewWorkItemID(), Owner: outmill.NewOwnerToken(), Claim: 1}})
		},
		"Claim": func(ctx context.Context, s *engine.Engine) error {
			topics := outmill.Topics{Include: []string{"orders"}}
			_, err := s.Claim(ctx, outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Topics: topics, Limit: 1, Lease: time.Minute})
			return err
		},
		"Stats": func(ctx context.Context, s *engine.Engine) error {
			_, err := s.Stats(ctx, 1)
			return err
		},
		"Maintain": func(ctx context.Context, s *engine.Engine) error {
			_, err := s.Maintain(ctx)
			return err
		},
		"SetFairTopics": func(ctx context.Context, s *engine.Engine) error { return s.SetFairTopics(ctx) },
		"Transact": func(ctx context.Context, s *engine.Engine) error {
			return s.Transact(ctx, func(ctx context.Context) error { return publish(ctx, s) })
		},
		"Ready": func(ctx context.Context, s *engine.Engine) error { return engine.Ready(ctx, s, "begin") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := memdriver.Driver{Database: memdriver.New()}
			plain := engine.New(db, engine.Config{})
			lazy := engine.New(db, engine.Config{FairTopics: []string{"orders"}, EnsureSchema: true})
			require.ErrorIs(t, publish(t.Context(), plain), outmill.ErrSchemaMissing)
			tx := db.Begin()
			require.ErrorIs(t, publish(db.WithTx(t.Context(), tx), lazy), outmill.ErrSchemaMissing)
			require.NoError(t, tx.Rollback())
			require.NoError(t, first(t.Context(), lazy))
			require.ErrorIs(t, publish(t.Context(), plain), outmill.ErrFairTopics)
			require.NoError(t, publish(t.Context(), lazy))
		})
	}
}
