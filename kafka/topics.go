package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// askAgainAfter is the wait between two requests for an unknown topic.
const askAgainAfter = 250 * time.Millisecond

// topics knows the topics that the brokers have accepted before. It asks the brokers for
// other topics before their messages are sent, so that a missing topic does not delay other
// messages, and an unreachable broker is detected at once.
type topics struct {
	client  func() *client
	brokers []string
	create  bool
	// patience is the time for which to ask again for an unknown topic; timeout limits the
	// time that the brokers take to answer.
	patience, timeout time.Duration

	mu    sync.Mutex
	known map[string]bool
}

func (t *topics) isKnown(topic string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[topic]
}

func (t *topics) learn(topic string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known[topic] = true
}

func (t *topics) forget(topic string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, topic)
}

func (t *topics) forgetAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.known)
}

// check returns an error for each topic to which the client cannot produce, and nil for the
// others.
func (t *topics) check(ctx context.Context, names []string) map[string]error {
	limited, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	verdicts := make(map[string]error, len(names))
	giveUp := time.Now().Add(t.patience)
	for {
		answers, broker, err := t.ask(limited, names)
		if err != nil {
			if ctx.Err() != nil {
				err = endedError(ctx, false)
			} else {
				err = unreachableError(t.brokers, err)
			}
			for _, name := range names {
				verdicts[name] = err
			}
			return verdicts
		}
		var again []string
		for _, name := range names {
			err := answers[name]
			switch {
			case err == nil:
				t.learn(name)
				verdicts[name] = nil
			case kerr.IsRetriable(err) && time.Now().Before(giveUp):
				again = append(again, name)
			default:
				verdicts[name] = t.missingError(limited, broker, name, err)
			}
		}
		if len(again) == 0 {
			return verdicts
		}
		names = again
		wait(limited, askAgainAfter)
	}
}

// ask returns the brokers' answer for each topic: an error, or nil if the topic exists. broker is the number of one of the brokers.
func (t *topics) ask(ctx context.Context, names []string) (answers map[string]error, broker int32, err error) {
	client := t.client()
	resp, err := t.request(names).RequestWith(ctx, client.Client)
	for err != nil && client != t.client() {
		// Another goroutine has replaced the client and closed its connections.
		client = t.client()
		resp, err = t.request(names).RequestWith(ctx, client.Client)
	}
	if err != nil {
		return nil, 0, err
	}
	answers = make(map[string]error, len(names))
	for _, name := range names {
		answers[name] = kerr.UnknownTopicOrPartition
	}
	for _, topic := range resp.Topics {
		if topic.Topic != nil {
			answers[*topic.Topic] = kerr.ErrorForCode(topic.ErrorCode)
		}
	}
	if len(resp.Brokers) > 0 {
		broker = resp.Brokers[0].NodeID
	}
	return answers, broker, nil
}

// request makes a new request each time, because a client may still use a request for a
// moment after it has failed.
func (t *topics) request(names []string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = t.create
	for _, name := range names {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, topic)
	}
	return req
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
