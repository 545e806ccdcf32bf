package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outmill/outmill"
)

// Defaults of Config.
const (
	DefaultClientID           = "outmill"
	DefaultDeliveryTimeout    = 10 * time.Second
	DefaultTopicTimeout       = 3 * time.Second
	DefaultMaxMessageBytes    = 1_000_012
	DefaultMaxBufferedRecords = 10_000
	DefaultMaxBufferedBytes   = 32 << 20
)

// minTimeout is the shortest timeout in which a broker can answer.
const minTimeout = 100 * time.Millisecond

// Config holds the settings of a publisher. Only Brokers has no default. By default connections are plaintext, without authentication,
// and batches are not compressed.
type Config struct {
	// Brokers are the addresses (host:port) that the publisher asks for the brokers of the cluster. Required; more than one lets it start
	// while one of them is down.
	Brokers []string
	// Marshaler makes the record of a message. nil is DefaultMarshaler.
	Marshaler Marshaler
	// ClientID is the name of the client in the brokers' logs and quotas. "" is "outmill".
	ClientID string
	// Compression of the batches. "" is none, which every broker and consumer can read.
	// LZ4 and Snappy cost little CPU: try them if the network or the
	// broker's disk is the bottleneck. Zstd compresses best and requires brokers and consumers
	// of 2.1 or later.
	Compression Compression
	// TLS is used for all connections if it is not nil. The server's name is
	// taken from each broker's address unless TLS.ServerName is set.
	TLS *tls.Config
	// SASL authenticates all connections. The zero value is none.
	SASL SASL
	// DeliveryTimeout is the longest time from the first attempt to the broker's
	// acknowledgement. Within it the publisher retries after transient errors: leader
	// elections, broken connections. 0 is 10 s. Before its first attempt a message may wait
	// for the same time for earlier messages.
	DeliveryTimeout time.Duration
	// TopicTimeout is the time for which the publisher asks again for a topic that the broker
	// does not know, before the messages fail with outmill.ErrTopicUnavailable. It is needed
	// because not every broker knows a new topic at once. 0 is 3 s.
	TopicTimeout time.Duration
	// NoTopicCreation stops the publisher from asking brokers to create missing topics. By
	// default it asks, as sarama does, and the brokers' setting auto.create.topics.enable
	// decides.
	NoTopicCreation bool
	// MaxMessageBytes is the size of the largest batch, uncompressed, and so of the largest
	// message with its key and headers. 0 is 1,000,012 bytes, below the brokers' default limit
	// (max.message.bytes of the topic). If the limit of a topic is smaller, the broker refuses
	// batches, and the publisher splits and sends them again, which is slow.
	MaxMessageBytes int
	// MaxBufferedRecords and MaxBufferedBytes limit the records that are sent at a time. A
	// larger call is sent in parts, one after the other, and other calls wait for it. 0 is
	// 10,000 records and 32 MiB of payloads, keys and headers.
	MaxBufferedRecords int
	MaxBufferedBytes   int
}

// Limits of the brokers: a request is at most 100 MiB (socket.request.max.bytes).
const (
	minMessageBytes = 512
	maxMessageBytes = 100_000_000
)

func (c *Config) setDefaults() {
	if c.Marshaler == nil {
		c.Marshaler = DefaultMarshaler{}
	}
	setDefault(&c.ClientID, DefaultClientID)
	setDefault(&c.Compression, CompressionNone)
	setDefault(&c.DeliveryTimeout, DefaultDeliveryTimeout)
	setDefault(&c.TopicTimeout, DefaultTopicTimeout)
	setDefault(&c.MaxMessageBytes, DefaultMaxMessageBytes)
	setDefault(&c.MaxBufferedRecords, DefaultMaxBufferedRecords)
	setDefault(&c.MaxBufferedBytes, DefaultMaxBufferedBytes)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate returns an error for every invalid setting, joined. Each matches outmill.ErrInvalidConfig and names the field.
func (c Config) Validate() error {
	c.setDefaults()
	var errs []error
	refuse := func(field string, value any, want string) {
		errs = append(errs, fmt.Errorf("%w: kafka.Config.%s is %v: want %s", outmill.ErrInvalidConfig, field, value, want))
	}
	if len(c.Brokers) == 0 {
		refuse("Brokers", "empty", "at least one host:port")
	}
	for i, broker := range c.Brokers {
		if strings.TrimSpace(broker) == "" {
			refuse(fmt.Sprintf("Brokers[%d]", i), "empty", "host:port")
		}
	}
	if c.Marshaler != nil && outmill.IsNil(c.Marshaler) {
		refuse("Marshaler", "a nil pointer", "a marshaler, or nil for DefaultMarshaler")
	}
	if !slices.Contains(compressions, c.Compression) {
		refuse("Compression", fmt.Sprintf("%q", c.Compression), "one of none, gzip, snappy, lz4, zstd")
	}
	if c.DeliveryTimeout < minTimeout {
		refuse("DeliveryTimeout", c.DeliveryTimeout, "at least "+minTimeout.String())
	}
	if c.TopicTimeout < 0 {
		refuse("TopicTimeout", c.TopicTimeout, "0 or more")
	}
	if c.MaxMessageBytes < minMessageBytes || c.MaxMessageBytes > maxMessageBytes {
		refuse("MaxMessageBytes", c.MaxMessageBytes, fmt.Sprintf("%d to %d", minMessageBytes, maxMessageBytes))
	}
	if c.MaxBufferedRecords < 1 {
		refuse("MaxBufferedRecords", c.MaxBufferedRecords, "1 or more")
	}
	if c.MaxBufferedBytes < 1 {
		refuse("MaxBufferedBytes", c.MaxBufferedBytes, "1 or more")
	}
	return errors.Join(append(errs, c.SASL.validate())...)
}
