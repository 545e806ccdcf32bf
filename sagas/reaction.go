package sagas

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// Reaction handles the messages of one type on a topic. StartedBy, On and Timeout make it.
type Reaction[State any] struct {
	topic          string
	starts, timely bool
	// value is a pointer to a zero value of the message's type, from which the marshaler gets
	// the name of the type. It is nil if messages are not decoded.
	value any
	open  func(msg *message.Message, by Marshaler) (correlation string, handle func(*Context[State]) error, err error)
}

// StartedBy starts a saga if none has the message's correlation value. If there is one, it
// handles the message with that saga, as On does.
func StartedBy[State, M any](topic string, correlate func(M) string, handle func(*Context[State], M) error) Reaction[State] {
	r := On(topic, correlate, handle)
	r.starts = true
	return r
}

// On handles the messages of existing sagas. Config.Marshaler decodes each message into an M,
// which is a struct. If M is *message.Message, the handler gets the message undecoded.
// correlate returns the message's correlation value, and must have no side effects.
func On[State, M any](topic string, correlate func(M) string, handle func(*Context[State], M) error) Reaction[State] {
	return reaction(topic, func(_ *message.Message, m M) string { return correlate(m) }, handle)
}

// Timeout handles the messages that Context.Timeout published to the topic. If their saga is
// finished or deleted, they are acked, even if another saga has been started since with the
// same correlation value.
func Timeout[State, M any](topic string, handle func(*Context[State], M) error) Reaction[State] {
	r := reaction(topic, func(msg *message.Message, _ M) string { return msg.Metadata.Get(MetadataCorrelation) }, handle)
	r.timely = true
	return r
}

func reaction[State, M any](
	topic string, correlate func(*message.Message, M) string, handle func(*Context[State], M) error,
) Reaction[State] {
	r := Reaction[State]{topic: topic}
	_, whole := any(*new(M)).(*message.Message)
	if !whole {
		r.value = new(M)
	}
	r.open = func(msg *message.Message, by Marshaler) (string, func(*Context[State]) error, error) {
		var m M
		if whole {
			m = any(msg).(M)
		} else if err := by.Unmarshal(msg, &m); err != nil {
			return "", nil, err
		}
		return correlate(msg, m), func(c *Context[State]) error { return handle(c, m) }, nil
	}
	return r
}

// routes has the reactions of a kind, by the topic and the name of the message's type.
// Reactions that take undecoded messages have the name "".
type routes[State any] map[string]map[string]Reaction[State]

func newRoutes[State any](reactions []Reaction[State], by Marshaler) (routes[State], []string, error) {
	all := routes[State]{}
	var topics []string
	for _, r := range reactions {
		if r.topic == "" || r.open == nil {
			return nil, nil, fmt.Errorf("%w: sagas.Define: a reaction has no topic", outmill.ErrInvalidConfig)
		}
		name := ""
		if r.value != nil {
			name = by.Name(r.value)
		}
		if strings.ContainsFunc(name, unicode.IsControl) {
			// The marshaler of package contracts returns such a name for an unregistered type.
			return nil, nil, fmt.Errorf("%w: sagas.Define: the marshaler has no name for %T of topic %q: %s",
				outmill.ErrInvalidConfig, r.value, r.topic, strings.TrimSpace(name))
		}
		if _, twice := all[r.topic][name]; twice {
			return nil, nil, fmt.Errorf("%w: sagas.Define: topic %q has two reactions for messages of type %q: want one",
				outmill.ErrInvalidConfig, r.topic, name)
		}
		if all[r.topic] == nil {
			all[r.topic] = map[string]Reaction[State]{}
			topics = append(topics, r.topic)
		}
		all[r.topic][name] = r
	}
	return all, topics, nil
}

// of returns the reaction to a message of this topic and type name.
func (r routes[State]) of(topic, name string) (Reaction[State], bool) {
	found, ok := r[topic][name]
	if !ok {
		found, ok = r[topic][""]
	}
	return found, ok
}
