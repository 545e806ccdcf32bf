package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outmill/outmill/cmd/outmill/internal/jetstream"
	"github.com/outmill/outmill/kafka"
)

// destination is where a forwarder publishes to.
type destination struct {
	message.Publisher
	// shown names it in messages, without credentials.
	shown string
	// ping returns an error while the broker cannot be reached.
	ping func(ctx context.Context) error
	// close closes the publisher, and the broker if it is in this process.
	close func() error
}

// destinations is what --to takes.
const destinations = "kafka://HOST:PORT[,HOST:PORT…], nats://HOST:PORT[,…], or memory: for trials"

// openDestination opens the broker that --to names.
func openDestination(to string, logger watermill.LoggerAdapter) (destination, error) {
	scheme, rest, _ := strings.Cut(to, ":")
	switch scheme {
	case "kafka", "kafkas":
		return openKafka(to, logger)
	case "nats", "tls":
		return openJetStream(to)
	case "memory":
		return openMemory(strings.TrimPrefix(rest, "//"), logger)
	case "":
		return destination{}, usagef("--to is missing: want %s", destinations)
	}
	return destination{}, usagef("--to begins with %.20q: want %s", scheme, destinations)
}

func openJetStream(to string) (destination, error) {
	publisher, err := jetstream.Connect(to)
	if err != nil {
		return destination{}, err
	}
	return destination{Publisher: publisher, shown: jetstream.Redact(to), ping: publisher.Ping, close: publisher.Close}, nil
}

func openKafka(to string, logger watermill.LoggerAdapter) (destination, error) {
	config, err := parseKafka(to)
	if err != nil {
		return destination{}, err
	}
	publisher, err := kafka.NewPublisher(config, logger)
	if err != nil {
		return destination{}, err
	}
	return destination{
		Publisher: publisher, shown: "kafka://" + strings.Join(config.Brokers, ","), ping: publisher.Ping, close: publisher.Close,
	}, nil
}

// parseKafka parses kafka://user:password@host:9092,host:9092?tls=true&sasl=scram-sha-512.
// net/url parses no list of hosts, so these are cut out first. No error shows a password.
func parseKafka(to string) (config kafka.Config, err error) {
	scheme, rest, _ := strings.Cut(to, "://")
	rest, query, _ := strings.Cut(rest, "?")
	user, hosts, found := cutLast(rest, "@")
	if !found {
		user, hosts = "", rest
	}
	for host := range strings.SplitSeq(strings.TrimSuffix(hosts, "/"), ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			return config, usagef("--to has the broker %.80q: want HOST:PORT, such as localhost:9092", host)
		}
		config.Brokers = append(config.Brokers, host)
	}
	if scheme == "kafkas" {
		config.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if user != "" {
		config.SASL.Mechanism = kafka.SASLPlain
		name, password, _ := strings.Cut(user, ":")
		if config.SASL.Username, err = url.PathUnescape(name); err == nil {
			config.SASL.Password, err = url.PathUnescape(password)
		}
		if err != nil {
			return config, usagef("--to has a user or a password that is not escaped as in a URL: write %%25 for %%, %%40 for @")
		}
	}
	return config, kafkaParameters(query, &config)
}

func kafkaParameters(query string, config *kafka.Config) error {
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return usagef("--to has parameters that are no URL's: want NAME=VALUE&NAME=VALUE behind the ?")
	}
	for name := range parameters {
		if strings.Contains(name, "@") {
			return usagef("--to has an @ behind the ?: if both are in a password, write %%3F for ? and %%40 for @")
		}
	}
	for name, values := range parameters {
		value := values[len(values)-1]
		switch name {
		case "sasl":
			config.SASL.Mechanism = kafka.SASLMechanism(strings.ToUpper(value))
		case "compression":
			config.Compression = kafka.Compression(value)
		case "client_id":
			config.ClientID = value
		case "create_topics":
			create, err := strconv.ParseBool(value)
			if err != nil {
				return usagef("--to has create_topics=%q: want true or false", value)
			}
			config.NoTopicCreation = !create
		case "delivery_timeout":
			if config.DeliveryTimeout, err = time.ParseDuration(value); err != nil {
				return usagef("--to has delivery_timeout=%q: want a duration, such as 10s", value)
			}
		default:
			return usagef("--to has the parameter %.40q: want sasl, compression, client_id, create_topics or delivery_timeout", name)
		}
	}
	return nil
}

// cutLast is strings.Cut at the last separator.
func cutLast(text, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(text, separator); i >= 0 {
		return text[:i], text[i+len(separator):], true
	}
	return text, "", false
}

// openMemory starts a Kafka in this process, for trials. where is a port, or empty.
func openMemory(where string, logger watermill.LoggerAdapter) (destination, error) {
	options := []kfake.Opt{kfake.NumBrokers(1), kfake.DefaultNumPartitions(4), kfake.AllowAutoTopicCreation()}
	if where != "" {
		port, err := strconv.ParseUint(where, 10, 16)
		if err != nil || port == 0 {
			return destination{}, usagef("--to is memory:%.40s: want memory: or memory:PORT", where)
		}
		options = append(options, kfake.Ports(int(port)))
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		return destination{}, fmt.Errorf("outmill: start the Kafka in this process: %w", err)
	}
	brokers := cluster.ListenAddrs()
	publisher, err := kafka.NewPublisher(kafka.Config{Brokers: brokers}, logger)
	if err != nil {
		cluster.Close()
		return destination{}, err
	}
	return destination{
		Publisher: publisher,
		shown:     "kafka://" + strings.Join(brokers, ",") + " (in this process, for trials: its messages are lost when it ends)",
		ping:      publisher.Ping,
		close: func() error {
			err := publisher.Close()
			cluster.Close()
			return errors.Join(err)
		},
	}, nil
}
