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

// DefaultAddr is where a broker of this machine is looked for.
const DefaultAddr = "127.0.0.1:9092"

// answersWithin bounds one Check.
const answersWithin = 20 * time.Second

// Find returns the brokers that the environment names, else one that listens
// at DefaultAddr; nil where there is neither. It is an error if the
// environment names brokers that do not answer.
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

// Check reports whether Kafka answers at the addresses, and whether the
// addresses that its brokers advertise can be reached from here as well.
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
