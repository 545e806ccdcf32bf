package kafka_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/storekit"
)

type ownMarshaler struct{ kafka.DefaultMarshaler }

func (m ownMarshaler) Marshal(topic string, msg *message.Message) (*kgo.Record, error) {
	return m.DefaultMarshaler.Marshal(topic, msg)
}

func TestPublisher_NamesItsLargestMessage(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		config kafka.Config
		want   int
	}{
		{kafka.Config{}, kafka.DefaultMaxMessageBytes},
		{kafka.Config{MaxMessageBytes: 5000}, 5000},
		{kafka.Config{MaxMessageBytes: 5000, Marshaler: ownMarshaler{}}, 0},
	} {
		one.config.Brokers = []string{"127.0.0.1:1"}
		p, err := kafka.NewPublisher(one.config, nil)
		require.NoError(t, err)
		var limited storekit.SizeLimited = p
		require.Equal(t, one.want, limited.MaxMessageBytes())
		require.NoError(t, p.Close())
	}
}
