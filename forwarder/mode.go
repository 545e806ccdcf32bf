package forwarder

import (
	"fmt"
	"reflect"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// maxWrappers limits the search through decorators, which may form a cycle.
const maxWrappers = 16

// mode is the way in which messages reach the publisher.
type mode struct {
	// batching takes batches; it is nil if the publisher gets one message at a time.
	batching storekit.BatchPublisher
	// passed are the types of the decorators that batches bypass.
	passed []string
	// hidden is the type of a publisher of batches that the decorator hider wraps and hides;
	// "" if there is none.
	hider, hidden string
}

// modeOf searches for a publisher of batches behind decorators with a method Unwrap.
func modeOf(publisher message.Publisher) mode {
	var passed []string
	for range maxWrappers {
		if batching, ok := publisher.(storekit.BatchPublisher); ok {
			return mode{batching: batching, passed: passed}
		}
		inner := unwrap(publisher)
		if inner == nil {
			break
		}
		passed = append(passed, fmt.Sprintf("%T", publisher))
		publisher = inner
	}
	hider, hidden := findHidden(reflect.ValueOf(publisher), maxWrappers)
	return mode{hider: hider, hidden: hidden}
}

// unwrap returns nil if the publisher has no Unwrap, or if Unwrap returns nil or panics.
func unwrap(publisher message.Publisher) (inner message.Publisher) {
	wrapper, ok := publisher.(interface{ Unwrap() message.Publisher })
	if !ok {
		return nil
	}
	defer func() {
		if recover() != nil {
			inner = nil
		}
	}()
	if inner = wrapper.Unwrap(); outmill.IsNil(inner) {
		return nil
	}
	return inner
}

var (
	publisherType = reflect.TypeFor[message.Publisher]()
	batchingType  = reflect.TypeFor[storekit.BatchPublisher]()
)

// findHidden searches for a publisher of batches in the fields of a publisher, and in the
// fields of these. It reads only types, because most decorators keep the inner publisher in
// an unexported field.
func findHidden(v reflect.Value, depth int) (hider, hidden string) {
	v = pointedTo(v)
	if depth == 0 || v.Kind() != reflect.Struct {
		return "", ""
	}
	for i := range v.NumField() {
		field := v.Field(i)
		if field.Kind() == reflect.Interface {
			field = field.Elem()
		}
		switch {
		case !field.IsValid() || !field.Type().Implements(publisherType):
			continue
		case field.Type().Implements(batchingType):
			return v.Type().String(), field.Type().String()
		}
		if hider, hidden := findHidden(field, depth-1); hidden != "" {
			return hider, hidden
		}
	}
	return "", ""
}

// pointedTo follows pointers and interfaces. The result is not valid if one of them is nil.
func pointedTo(v reflect.Value) reflect.Value {
	for range maxWrappers {
		if v.Kind() != reflect.Pointer && v.Kind() != reflect.Interface {
			break
		}
		v = v.Elem()
	}
	return v
}

// log logs the mode, because publishing one message at a time costs a round trip for each
// message, and no other output shows this reason.
func (m mode) log(log watermill.LoggerAdapter, publisher message.Publisher, lanes int) {
	fields := watermill.LogFields{"publisher": fmt.Sprintf("%T", publisher)}
	switch {
	case m.batching == nil:
		fields["lanes"] = lanes
		log.Info("The forwarder publishes one message at a time in each of its lanes", fields)
	case len(m.passed) == 0:
		log.Info("The forwarder publishes in batches", fields)
	default:
		fields["batches_through"] = fmt.Sprintf("%T", m.batching)
		fields["passed_by"] = m.passed
		log.Info("The forwarder publishes in batches, which bypass the decorators without PublishBatch", fields)
	}
	if m.hidden != "" {
		log.Error("Warning: a decorator hides a publisher that takes batches, so the forwarder publishes one message in each round trip; give "+
			"the decorator a method PublishBatch, or Unwrap() message.Publisher if batches may bypass it", nil,
			watermill.LogFields{"decorator": m.hider, "hides": m.hidden})
	}
}
