package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outmill/outmill"
)

// blame is the cause of an error of the client.
type blame int

const (
	// blameBroker: a transient or an unknown cause.
	blameBroker blame = iota
	// blameRecord: the broker refuses a record, and with it the whole batch.
	blameRecord
	// blameTopic: the broker refuses the topic.
	blameTopic
	// blameClient: the client itself cannot continue.
	blameClient
)

var (
	recordErrors = []error{
		kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp,
		kerr.CorruptMessage, kerr.UnsupportedForMessageFormat,
	}
	topicErrors = []error{
		kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.TopicAuthorizationFailed, kerr.InvalidTopicException,
	}
)

func blameOf(err error) blame {
	is := func(target error) bool { return errors.Is(err, target) }
	var answer *kerr.Error
	switch {
	case slices.ContainsFunc(recordErrors, is):
		return blameRecord
	case slices.ContainsFunc(topicErrors, is):
		return blameTopic
	case errors.As(err, &answer) && !answer.Retriable:
		return blameClient
	}
	return blameBroker
}

// topicNameRemedy applies to names that this package refuses and to names that the broker
// refuses.
const topicNameRemedy = "map it to a name that Kafka allows with forwarder.Config.MapTopic, or publish to another topic"

// topicError makes a forwarder hold the topic. For a refused name it is permanent, because
// the broker never accepts the name later.
func topicError(topic string, err error) error {
	if errors.Is(err, kerr.InvalidTopicException) {
		return outmill.Permanent(fmt.Errorf("kafka: topic %q: %w: %s", topic, err, topicNameRemedy))
	}
	remedy := "create it, or map the topic to one that exists"
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		remedy = "give the user WRITE and DESCRIBE on it"
	case errors.Is(err, kerr.UnknownTopicID):
		remedy = "it was deleted and created again; the publisher takes the new one within about a minute, without your help"
	}
	return fmt.Errorf("%w: kafka: topic %q: %w: %s", outmill.ErrTopicUnavailable, topic, err, remedy)
}

func refusedError(r *kgo.Record, err error) error {
	if errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge) {
		return outmill.Permanent(fmt.Errorf("kafka: message of %d bytes: %w: raise kafka.Config.MaxMessageBytes and the topic's "+
			"max.message.bytes, or publish a reference to the data", recordSize(r), err))
	}
	if errors.Is(err, kerr.InvalidRecord) && r.Key == nil {
		return outmill.Permanent(fmt.Errorf("kafka: message refused: %w: the message has no key, which a compacted topic "+
			"(cleanup.policy=compact) requires: set one with outmill.SetKey", err))
	}
	return outmill.Permanent(fmt.Errorf("kafka: message refused: %w", err))
}

func unreachableError(brokers []string, err error) error {
	return fmt.Errorf("kafka: brokers %s cannot be reached: %w: check the addresses (kafka.Config.Brokers), and that kafka.Config.TLS "+
		"and SASL match the settings of the brokers", strings.Join(brokers, ", "), err)
}

// endedError is the error of messages whose context ended before their result was known.
func endedError(ctx context.Context, sent bool) error {
	if sent {
		return fmt.Errorf("kafka: not acknowledged yet, and may still be delivered: %w", context.Cause(ctx))
	}
	return fmt.Errorf("kafka: not sent: %w", context.Cause(ctx))
}
