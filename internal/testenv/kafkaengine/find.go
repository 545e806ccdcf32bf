package kafkaengine

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// EnvURL names the environment variable with the addresses of a broker for
// tests: host:port[,host:port].
const EnvURL = "OUTMILL_TEST_KAFKA_URL"

// DefaultAddr is the address at which Find looks for a broker of this machine.
const DefaultAddr = "127.0.0.1:9092"

// answersWithin limits one Check.
const answersWithin = 20 * time.Second

// Find returns the brokers that the environment names, or else a broker that listens at
// DefaultAddr, or nil. If the environment names brokers that do not answer, it returns an
// error.
func Find(ctx context.Context) ([]string, error) {
	if addrs := split(os.Getenv(EnvURL)); len(addrs) > 0 {
		if err := Check(ctx, addrs); err != nil {
			return nil, fmt.Errorf("%s=%s: %w", EnvURL, strings.Join(addrs, ","), err)
		}
		return addrs, nil
	}
	if Check(ctx, []string{DefaultAddr}) == nil {
		return []string{DefaultAddr}, nil
	}
	return nil, nil
}

// Check returns an error unless Kafka answers at the addresses, and its brokers also answer
// at the addresses that they advertise.
func Check(ctx context.Context, addrs []string) error {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.DialTimeout(answersWithin), kgo.RequestRetries(1))
	if err != nil {
		return fmt.Errorf("make a Kafka client: %w", err)
	}
	defer cl.Close()
	if err := cl.Ping(ctx); err != nil {
		return fmt.Errorf("ask for Kafka's metadata: %w", err)
	}
	versions, err := kadm.NewClient(cl).ApiVersions(ctx)
	if err != nil {
		return fmt.Errorf("ask Kafka's brokers for their versions: %w", err)
	}
	for _, broker := range versions {
		if broker.Err != nil {
			return fmt.Errorf("broker %d does not answer at its advertised address: %w", broker.NodeID, broker.Err)
		}
	}
	return nil
}

func split(addrs string) []string {
	return strings.FieldsFunc(addrs, func(r rune) bool { return r == ',' || r == ' ' })
}
