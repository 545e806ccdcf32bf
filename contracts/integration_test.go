package contracts_test

import (
	"context"
	"os/exec"
	"testing"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/contracts"
)

// published is an EventBus that keeps what it gets.
type published []any

func (p *published) Publish(_ context.Context, event any) error {
	*p = append(*p, event)
	return nil
}

func TestIntegrationBus(t *testing.T) {
	t.Parallel()
	t.Run("publishes events that have the marker through its bus", func(t *testing.T) {
		t.Parallel()
		var got published
		bus, err := contracts.NewIntegrationBus(&got)
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), OrderPlaced{ID: "1"}))
		require.NoError(t, bus.Publish(t.Context(), &OrderPlaced{ID: "2"}))
		require.Equal(t, published{OrderPlaced{ID: "1"}, &OrderPlaced{ID: "2"}}, got)
	})
	t.Run("takes only events that have the marker, or the program does not compile", func(t *testing.T) {
		t.Parallel()
		build := func(dir string) (string, error) {
			out, err := exec.CommandContext(t.Context(), "go", "build", "./testdata/"+dir).CombinedOutput()
			return string(out), err
		}
		out, err := build("integrationevent")
		require.NoError(t, err, out)
		out, err = build("internalevent")
		require.Error(t, err)
		require.Contains(t, out, "StockCounted does not implement contracts.IntegrationEvent (missing method IntegrationEvent)")
	})
	t.Run("refuses to be made of no bus", func(t *testing.T) {
		t.Parallel()
		for _, bus := range []contracts.EventBus{nil, (*cqrs.EventBus)(nil)} {
			_, err := contracts.NewIntegrationBus(bus)
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		}
	})
}
