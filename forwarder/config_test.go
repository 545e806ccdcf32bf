package forwarder_test

import (
	"math"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/sqlite"
)

func TestForwarder_Config(t *testing.T) {
	t.Parallel()

	t.Run("New refuses nil arguments", func(t *testing.T) {
		t.Parallel()
		store, d := newStore(t), newDestination(t)
		for name, try := range map[string]func() (*forwarder.Forwarder, error){
			"the store": func() (*forwarder.Forwarder, error) { return forwarder.New(nil, d, forwarder.Config{}, nil) },
			"the store, typed": func() (*forwarder.Forwarder, error) {
				return forwarder.New((*sqlite.Store)(nil), d, forwarder.Config{}, nil)
			},
			"the publisher": func() (*forwarder.Forwarder, error) { return forwarder.New(store, nil, forwarder.Config{}, nil) },
			"the publisher, typed": func() (*forwarder.Forwarder, error) {
				return forwarder.New(store, (*gochannel.GoChannel)(nil), forwarder.Config{}, nil)
			},
			"the batch publisher, typed": func() (*forwarder.Forwarder, error) {
				return forwarder.New(store, (*batchDestination)(nil), forwarder.Config{}, nil)
			},
		} {
			fwd, err := try()
			require.ErrorIs(t, err, outmill.ErrInvalidConfig, name)
			require.Nil(t, fwd, name)
		}
	})

	t.Run("a nil logger logs nothing", func(t *testing.T) {
		t.Parallel()
		store, d := newStore(t), newDestination(t)
		_, err := forwarder.New(store, d, forwarder.Config{}, nil)
		require.NoError(t, err)
		_, err = forwarder.New(store, d, forwarder.Config{}, (*journal.Journal)(nil))
		require.NoError(t, err)
	})

	t.Run("the zero configuration is ready to use", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, forwarder.Config{}.Validate())
	})

	t.Run("an invalid setting is refused by name", func(t *testing.T) {
		t.Parallel()
		store, d := newStore(t), newDestination(t)
		for field, cfg := range map[string]forwarder.Config{
			"group":            {Group: " "},
			"worker":           {Worker: " w"},
			"topic pattern":    {Topics: outmill.Topics{Include: []string{""}}},
			"RetryPolicy":      {Retry: outmill.RetryPolicy{MaxInterval: -1}},
			"KeyPolicy":        {KeyPolicy: 7},
			"BatchSize":        {BatchSize: -1},
			"BatchSize is 100": {BatchSize: 10001},
			"MaxInFlightBytes": {MaxInFlightBytes: -1},
			"Lanes":            {Lanes: -1},
			"Lease":            {Lease: -time.Second},
			"PublishTimeout":   {PublishTimeout: -1},
			"PollInterval":     {PollInterval: -1},
			"MaxErrorBackoff":  {MaxErrorBackoff: -1},
			"AckFlushInterval": {AckFlushInterval: -1},
			"CloseTimeout":     {CloseTimeout: -1},
			"at most 24h":      {PublishTimeout: math.MaxInt64},
		} {
			_, err := forwarder.New(store, d, cfg, nil)
			require.Error(t, err, field)
			require.ErrorContains(t, err, field)
		}
		for _, policy := range []outmill.KeyPolicy{outmill.KeySkip, outmill.KeyPark} {
			err := forwarder.Config{Unordered: true, KeyPolicy: policy}.Validate()
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
			require.ErrorContains(t, err, "Unordered")
		}
	})

	t.Run("all invalid settings are named at once", func(t *testing.T) {
		t.Parallel()
		err := forwarder.Config{BatchSize: -1, Lanes: -1, Lease: -1}.Validate()
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		for _, field := range []string{"BatchSize", "Lanes", "Lease"} {
			require.ErrorContains(t, err, field)
		}
	})
}

var _ message.Publisher = (*destination)(nil)
