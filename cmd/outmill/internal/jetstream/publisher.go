// Package jetstream publishes to NATS JetStream in batches. Its Publisher is a Watermill
// publisher and a storekit.BatchPublisher, to which a forwarder publishes whole batches.
//
// A message goes to the subject of its topic, with the metadata as headers and the UUID in
// the header _watermill_message_uuid, as watermill-nats's NATSMarshaler writes it. Names that mean
// something to NATS get a prefix: see storekit.ForBroker. The header
// Nats-Msg-Id has the id of the outbox's record, so that a stream stores a message once that
// a forwarder sends again within the stream's duplicate window (two minutes by default).
//
// Messages of one topic and key arrive in the order of the call: the publisher sends the
// next message of a key when the stream has acknowledged the one before.
package jetstream

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/net/http/httpguts"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// ackTimeout is how long the publisher waits for the acknowledgement of one message.
const ackTimeout = 10 * time.Second

// Publisher publishes to NATS JetStream. It is safe for concurrent use.
type Publisher struct {
	conn *nats.Conn
	js   jetstream.JetStream
	// cause is why the last try to connect failed.
	cause *atomic.Pointer[error]
}

// Connect connects to one of the servers: URLs such as nats://host:4222, separated by commas.
// The first connection may fail; the client tries again until Close. The caller must close
// the publisher.
func Connect(urls string, options ...nats.Option) (*Publisher, error) {
	var cause atomic.Pointer[error]
	options = append([]nats.Option{
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { cause.Store(&err) }),
		nats.Name("outmill"),
		nats.MaxReconnects(-1),
		nats.RetryOnFailedConnect(true),
		// A message that is sent while the connection is away fails at once: if the client kept
		// it for later, it could arrive after messages that were sent after it.
		nats.ReconnectBufSize(-1),
	}, options...)
	conn, err := nats.Connect(urls, options...)
	var unread *url.Error
	if errors.As(err, &unread) {
		// Its text may quote a part of the password.
		err = errors.New("the URL cannot be read: in the user and the password, write / as %2F, ? as %3F, # as %23 and % as %25")
	}
	if err != nil {
		return nil, fmt.Errorf("jetstream: connect to %s: %w", Redact(urls), err)
	}
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncTimeout(ackTimeout))
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	return &Publisher{conn: conn, js: js, cause: &cause}, nil
}

// Redact returns the URLs without passwords and tokens.
func Redact(urls string) string {
	list := strings.Split(urls, ",")
	for i, address := range list {
		scheme, rest, found := strings.Cut(address, "://")
		if !found {
			scheme, rest = "nats", address
		}
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			rest = "xxxxx" + rest[at:]
		}
		list[i] = scheme + "://" + rest
	}
	return strings.Join(list, ",")
}

// Ping returns an error if no server can be reached, or if JetStream is not available there.
func (p *Publisher) Ping(ctx context.Context) error {
	if !p.conn.IsConnected() {
		if err := p.lastError(); err != nil {
			return fmt.Errorf("jetstream: %w: not connected to NATS (%s): %w", outmill.ErrBrokerUnavailable, p.conn.Status(), err)
		}
		return fmt.Errorf("jetstream: %w: not connected to NATS (%s)", outmill.ErrBrokerUnavailable, p.conn.Status())
	}
	if _, err := p.js.AccountInfo(ctx); err != nil {
		return fmt.Errorf("jetstream: %w: %w", outmill.ErrBrokerUnavailable, err)
	}
	return nil
}

// MaxMessageBytes implements storekit.SizeLimited: what the server takes, payload and headers; 0 before the first connection.
func (p *Publisher) MaxMessageBytes() int { return int(p.conn.MaxPayload()) }

// lastError is why there is no connection; nil if that is not known.
func (p *Publisher) lastError() error {
	if cause := p.cause.Load(); cause != nil {
		return *cause
	}
	return p.conn.LastError()
}

// Close closes the connection. It may be called more than once.
func (p *Publisher) Close() error {
	p.conn.Close()
	return nil
}

// Publish publishes the messages to the topic. See PublishBatch.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	batch := make([]storekit.Outgoing, len(messages))
	for i, msg := range messages {
		batch[i] = storekit.Outgoing{Topic: topic, Message: msg}
	}
	return p.PublishBatch(context.Background(), batch)
}

// PublishBatch implements storekit.BatchPublisher.
func (p *Publisher) PublishBatch(ctx context.Context, batch []storekit.Outgoing) error {
	if p.conn.IsClosed() {
		return outmill.ErrClosed
	}
	errs := make([]error, len(batch))
	failedKeys := map[lane]error{}
	for _, wave := range waves(batch) {
		p.send(ctx, batch, wave, errs, failedKeys)
	}
	failed := &storekit.PublishError{Total: len(batch)}
	for i, err := range errs {
		if err != nil {
			failed.Failed = append(failed.Failed, storekit.FailedMessage{
				Index: i, MessageID: batch[i].Message.UUID, Topic: batch[i].Topic, Err: err,
			})
		}
	}
	if len(failed.Failed) == 0 {
		return nil
	}
	return failed
}

// lane is what keeps its order.
type lane struct{ topic, key string }

func laneOf(o storekit.Outgoing) lane {
	return lane{o.Topic, o.Message.Metadata.Get(outmill.MetadataKey)}
}

// waves splits a batch into lists of indexes, of which each has one message of a key at most.
func waves(batch []storekit.Outgoing) [][]int {
	var all [][]int
	next := map[lane]int{}
	for i, o := range batch {
		wave := 0
		if at := laneOf(o); at.key != "" {
			wave = next[at]
			next[at]++
		}
		if wave == len(all) {
			all = append(all, nil)
		}
		all[wave] = append(all[wave], i)
	}
	return all
}

// send publishes the messages of a wave and waits for all acknowledgements.
func (p *Publisher) send(ctx context.Context, batch []storekit.Outgoing, wave []int, errs []error, failedKeys map[lane]error) {
	futures := make(map[int]jetstream.PubAckFuture, len(wave))
	for _, i := range wave {
		if before, failed := failedKeys[laneOf(batch[i])]; failed {
			errs[i] = fmt.Errorf("jetstream: an earlier message of the key failed: %w", before)
			continue
		}
		future, err := p.start(ctx, batch[i])
		if err != nil {
			errs[i] = err
			continue
		}
		futures[i] = future
	}
	for i, future := range futures {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			errs[i] = explain(batch[i].Topic, err)
		case <-ctx.Done():
			errs[i] = ctx.Err()
		}
	}
	for _, i := range wave {
		// A message that can never be delivered holds up no other.
		if at := laneOf(batch[i]); errs[i] != nil && at.key != "" && !outmill.IsPermanent(errs[i]) {
			failedKeys[at] = errs[i]
		}
	}
}

func (p *Publisher) start(ctx context.Context, o storekit.Outgoing) (jetstream.PubAckFuture, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	msg, err := marshal(o)
	if err != nil {
		return nil, err
	}
	if int64(len(msg.Data)) > p.conn.MaxPayload() && p.conn.MaxPayload() > 0 {
		return nil, outmill.Permanent(fmt.Errorf("jetstream: the payload has %d bytes, more than the server's max_payload of %d",
			len(msg.Data), p.conn.MaxPayload()))
	}
	future, err := p.js.PublishMsgAsync(msg)
	if err != nil {
		return nil, explain(o.Topic, err)
	}
	return future, nil
}

// marshal makes the NATS message. An error is permanent.
func marshal(o storekit.Outgoing) (*nats.Msg, error) {
	if !validSubject(o.Topic) {
		return nil, outmill.Permanent(fmt.Errorf("jetstream: the topic %.80q is no subject of NATS: "+
			"want words between dots, without blanks, * and >", o.Topic))
	}
	msg := nats.NewMsg(o.Topic)
	msg.Data = o.Message.Payload
	msg.Header.Set(storekit.HeaderUUID, o.Message.UUID)
	for name, value := range storekit.ForBroker(o.Message, reservedIn(o.Message)).Metadata {
		if !httpguts.ValidHeaderFieldName(name) || strings.ContainsAny(value, "\r\n") {
			return nil, outmill.Permanent(fmt.Errorf("jetstream: the metadata %.80q cannot be a header of NATS: "+
				"want a name without blanks and colons, and a value of one line", name))
		}
		msg.Header.Set(name, value)
	}
	msg.Header.Set(nats.MsgIdHdr, messageID(o))
	return msg, nil
}

// reservedIn reports whether a header of this name means something to NATS or to a reader of
// Watermill. The server obeys Nats-Rollup, Nats-Expected-Stream and others, and clients take a
// message without a payload that has a Status for a message of the server.
func reservedIn(msg *message.Message) func(name string) bool {
	return func(name string) bool {
		return name == storekit.HeaderUUID || len(name) >= 5 && strings.EqualFold(name[:5], "Nats-") ||
			len(msg.Payload) == 0 && (name == "Status" || name == "Description")
	}
}

// messageID is by what a stream knows a message that is sent again. The UUID would not do: a
// service may publish one message to two topics of a stream.
func messageID(o storekit.Outgoing) string {
	if delivery, ok := outmill.Delivery(o.Message.Context()); ok {
		return delivery.ID.String()
	}
	return o.Topic + "/" + o.Message.UUID
}

func validSubject(subject string) bool {
	if subject == "" || strings.ContainsAny(subject, " \t\r\n*>") {
		return false
	}
	for token := range strings.SplitSeq(subject, ".") {
		if token == "" {
			return false
		}
	}
	return true
}

// Answers of a stream about one message; all others are about the stream.
var (
	tooLarge = []jetstream.ErrorCode{
		10054, // maximum message size exceeded
		10097, // header size exceeds maximum allowed of 64k
	}
	aboutTheMessage = []jetstream.ErrorCode{
		10060, 10070, 10071, 10164, // expected stream, last message id, last sequence
		10111,        // rollup failed
		10165, 10166, // message TTL invalid, disabled
	}
)

// explain names the cause of an error of the client.
func explain(topic string, err error) error {
	var answer *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadSubject):
		return outmill.Permanent(fmt.Errorf("jetstream: %w", err))
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrNoStreamResponse):
		return fmt.Errorf("jetstream: %w: no stream stores the subject %s: create a stream for it: %w", outmill.ErrTopicUnavailable, topic, err)
	case errors.As(err, &answer) && slices.Contains(tooLarge, answer.ErrorCode):
		return outmill.Permanent(fmt.Errorf("jetstream: the stream of %s takes no message of this size: %w", topic, err))
	case errors.As(err, &answer) && slices.Contains(aboutTheMessage, answer.ErrorCode):
		return fmt.Errorf("jetstream: the stream of %s refused the message: %w", topic, err)
	case errors.As(err, &answer):
		return fmt.Errorf("jetstream: %w: the stream of %s refused the message: %w", outmill.ErrTopicUnavailable, topic, err)
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrConnectionReconnecting), errors.Is(err, nats.ErrDisconnected),
		errors.Is(err, nats.ErrReconnectBufExceeded):
		return fmt.Errorf("jetstream: %w: %w", outmill.ErrBrokerUnavailable, err)
	}
	return fmt.Errorf("jetstream: %w", err)
}
