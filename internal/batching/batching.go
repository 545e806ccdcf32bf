// Package batching finds the publisher of batches behind the decorators of a publisher.
package batching

import (
	"fmt"
	"reflect"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// maxWrappers limits the search through decorators, which may form a cycle.
const maxWrappers = 16

// Route is how batches reach a publisher.
type Route struct {
	// Publisher takes batches; it is nil if there is none that batches can reach.
	Publisher storekit.BatchPublisher
	// Passed are the types of the decorators that batches bypass.
	Passed []string
	// Hidden is the type of a publisher of batches that the decorator Hider wraps and hides;
	// "" if there is none.
	Hider, Hidden string
}

// RouteOf searches for a publisher of batches behind decorators with a method
// Unwrap() message.Publisher.
func RouteOf(publisher message.Publisher) Route {
	var passed []string
	for range maxWrappers {
		if batching, ok := publisher.(storekit.BatchPublisher); ok {
			return Route{Publisher: batching, Passed: passed}
		}
		inner := unwrap(publisher)
		if inner == nil {
			break
		}
		passed = append(passed, fmt.Sprintf("%T", publisher))
		publisher = inner
	}
	hider, hidden := findHidden(reflect.ValueOf(publisher), maxWrappers)
	return Route{Hider: hider, Hidden: hidden}
}

// PingerOf searches for a publisher that can ask its destination, behind decorators with a method Unwrap()
// message.Publisher. It returns nil if there is none.
func PingerOf(publisher message.Publisher) storekit.Pinger {
	for range maxWrappers {
		if pinger, ok := publisher.(storekit.Pinger); ok {
			return pinger
		}
		if publisher = unwrap(publisher); publisher == nil {
			break
		}
	}
	return nil
}

// LargestOf returns the largest size of a message that the publisher takes, in bytes; 0 is unknown. It does not look
// behind decorators, which may make messages smaller.
func LargestOf(publisher message.Publisher) int {
	if limited, ok := publisher.(storekit.SizeLimited); ok {
		return max(limited.MaxMessageBytes(), 0)
	}
	return 0
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
