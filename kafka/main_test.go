package kafka_test

import (
	"errors"
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/storekit"
)

func TestMain(m *testing.M) {
	testenv.ManyAtATime()
	if flag.Lookup("test.bench").Value.String() == "" {
		// On a machine with few CPUs concurrent calls rarely overlap.
		runtime.GOMAXPROCS(max(8, runtime.NumCPU()))
	}
	// sarama's metrics library runs one goroutine that never ends.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

// soon limits the waits of a test.
const soon = time.Minute

func newPublisher(t testing.TB, brokers []string, config kafka.Config) *kafka.Publisher {
	t.Helper()
	config.Brokers = brokers
	pub, err := kafka.NewPublisher(config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pub.Close()) })
	return pub
}

func newMessage(payload string) *message.Message {
	return message.NewMessage(uuid.NewString(), []byte(payload))
}

func keyedMessage(key, payload string) *message.Message {
	msg := newMessage(payload)
	outmill.SetKey(msg, key)
	return msg
}

// numbered returns n messages with the payloads 0 to n-1.
func numbered(n int) []*message.Message {
	messages := make([]*message.Message, n)
	for i := range messages {
		messages[i] = newMessage(fmt.Sprint(i))
	}
	return messages
}

func outgoing(topic string, messages ...*message.Message) []storekit.Outgoing {
	batch := make([]storekit.Outgoing, len(messages))
	for i, msg := range messages {
		batch[i] = storekit.Outgoing{Topic: topic, Message: msg}
	}
	return batch
}

func payloads(records []*kgo.Record) []string {
	texts := make([]string, len(records))
	for i, r := range records {
		texts[i] = string(r.Value)
	}
	return texts
}

// failedMessages returns the failed messages in a PublishError.
func failedMessages(t testing.TB, err error) []storekit.FailedMessage {
	t.Helper()
	var failed *storekit.PublishError
	require.True(t, errors.As(err, &failed), "want a PublishError, got %v", err)
	require.NotEmpty(t, failed.Failed)
	return failed.Failed
}

// failedAlone returns the only failed message in a PublishError.
func failedAlone(t testing.TB, err error) storekit.FailedMessage {
	t.Helper()
	failed := failedMessages(t, err)
	require.Len(t, failed, 1, "%v", err)
	return failed[0]
}
