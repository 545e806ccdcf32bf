package watermillkafka

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/kafka"
)

// NewPublisher makes the publisher of package kafka from watermill-kafka's configuration, with the other settings of [kafka.Config] at
// their defaults. Errors are those of ConfigOf. It does not connect. The caller must close the publisher.
func NewPublisher(config wkafka.PublisherConfig, logger watermill.LoggerAdapter) (*kafka.Publisher, error) {
	own, err := ConfigOf(config)
	if err != nil {
		return nil, err
	}
	return kafka.NewPublisher(own, logger)
}

// ConfigOf returns watermill-kafka's configuration as one of package kafka, so that a program can add settings, such as TLS, and pass
// it to [kafka.NewPublisher]. It takes Brokers and Marshaler; a nil Marshaler is the DefaultMarshaler. The error matches
// [outmill.ErrInvalidConfig] and names every field that is invalid. It refuses OverwriteSaramaConfig, OTELEnabled and Tracer, because the
// publisher does not use sarama, and names their replacement.
func ConfigOf(config wkafka.PublisherConfig) (kafka.Config, error) {
	if err := check(config); err != nil {
		return kafka.Config{}, err
	}
	own := kafka.Config{Brokers: slices.Clone(config.Brokers)}
	if usual := (wkafka.DefaultMarshaler{}); config.Marshaler != nil && config.Marshaler != usual {
		own.Marshaler = marshaler{config.Marshaler}
	}
	return own, nil
}

// check refuses the settings that this publisher cannot use, instead of ignoring them silently.
func check(c wkafka.PublisherConfig) error {
	var errs []error
	refuse := func(field, reason string) {
		errs = append(errs, fmt.Errorf("%w: PublisherConfig.%s %s", outmill.ErrInvalidConfig, field, reason))
	}
	if len(c.Brokers) == 0 {
		refuse("Brokers", "is empty: want at least one host:port")
	}
	if slices.ContainsFunc(c.Brokers, func(b string) bool { return strings.TrimSpace(b) == "" }) {
		refuse("Brokers", "has an empty address: want host:port")
	}
	if c.Marshaler != nil && outmill.IsNil(c.Marshaler) {
		refuse("Marshaler", "holds a nil pointer: leave it out for kafka.DefaultMarshaler of watermill-kafka")
	}
	if c.OverwriteSaramaConfig != nil {
		refuse("OverwriteSaramaConfig", "is set, but this publisher does not use sarama: leave it out, add your settings to the result of "+
			"watermillkafka.ConfigOf (ClientID, Compression, TLS, SASL, DeliveryTimeout, MaxMessageBytes of kafka.Config), and pass that to "+
			"kafka.NewPublisher; acks and idempotence are always on")
	}
	if c.OTELEnabled {
		refuse("OTELEnabled", "is set, but its tracer wraps sarama's producer, which this publisher does not use: leave it out and give "+
			"messages their trace with outmill.SetTrace, which travels in the headers")
	}
	if c.Tracer != nil {
		refuse("Tracer", "is set, but it wraps sarama's producer, which this publisher does not use: leave it out and give messages their "+
			"trace with outmill.SetTrace, which travels in the headers")
	}
	return errors.Join(errs...)
}
