package contracts

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// Registry knows the contracts of a program. It never changes, and is safe for concurrent
// use.
type Registry struct {
	byName map[string]*Contract
	// byType has each type, and the pointer to it.
	byType    map[reflect.Type]*Contract
	watermill map[string]watermillContract
}

// NewRegistry makes a registry, or reports all that is wrong: ErrInvalidContract, and
// ErrDuplicateContract where two contracts have the same name or type. A name has one
// contract, with one current version; [UpcastFrom] adds the older ones.
func NewRegistry(contracts ...Contract) (*Registry, error) {
	r := &Registry{
		byName:    make(map[string]*Contract, len(contracts)),
		byType:    make(map[reflect.Type]*Contract, 2*len(contracts)),
		watermill: map[string]watermillContract{},
	}
	var errs []error
	for i, c := range contracts {
		errs = append(errs, r.add(i, c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Registry) add(index int, c Contract) error {
	if c.typ == nil {
		return fmt.Errorf("%w at place %d is empty: make it with contracts.Of", ErrInvalidContract, index)
	}
	if len(c.problems) > 0 {
		return fmt.Errorf("%w %s of type %s: %s", ErrInvalidContract, quote(c.name), c.typ, strings.Join(c.problems, "; "))
	}
	if other := r.byName[c.name]; other != nil {
		return fmt.Errorf("%w %s: types %s and %s have this name: give each its own, or add the older one with contracts.UpcastFrom",
			ErrDuplicateContract, quote(c.name), other.typ, c.typ)
	}
	if other := r.byType[c.typ]; other != nil {
		return fmt.Errorf("%w: type %s is registered as %s and %s: register it once",
			ErrDuplicateContract, c.typ, quote(other.name), quote(c.name))
	}
	r.byName[c.name] = &c
	r.byType[c.typ], r.byType[reflect.PointerTo(c.typ)] = &c, &c
	return r.addWatermill(&c)
}

// Contracts returns all contracts, by name: for a program that lists what it publishes.
func (r *Registry) Contracts() []Contract {
	all := make([]Contract, 0, len(r.byName))
	for _, c := range r.byName {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b Contract) int { return cmp.Compare(a.name, b.name) })
	return all
}

// ContractOf returns the contract of a value's type, or of the type that a pointer points to;
// the pointer may be nil. The error is an [UnknownContractError].
//
// It makes topics, and refuses handlers of unregistered types at start:
//
//	GenerateSubscribeTopic: func(p cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) {
//		contract, err := registry.ContractOf(p.EventHandler.NewEvent())
//		return contract.Name(), err
//	},
func (r *Registry) ContractOf(v any) (Contract, error) {
	c := r.byType[reflect.TypeOf(v)]
	if c == nil {
		return Contract{}, unknownType(v)
	}
	return *c, nil
}

// Name is the name of the contract of v, for marshalers. For a type that is not registered it
// is a text that no contract has as its name, and that says so: [Registry.ContractOf] returns
// an error instead.
func (r *Registry) Name(v any) string {
	if c := r.byType[reflect.TypeOf(v)]; c != nil {
		return c.name
	}
	return fmt.Sprintf("\tno contract: type %T is not registered", v)
}

// RefuseUnknown makes the middleware of a marshaler: see [Marshaler.RefuseUnknown]. identify
// returns the contract that a message has.
func (r *Registry) RefuseUnknown(
	identify func(*message.Message) (name string, version int, err error), next message.HandlerFunc,
) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		name, version, err := identify(msg)
		if err == nil {
			err = r.Check(name, version)
		}
		if err != nil {
			return nil, err
		}
		return next(msg)
	}
}

// Check reports whether messages of that contract can be read. The error is a permanent
// [UnknownContractError].
func (r *Registry) Check(name string, version int) error {
	_, _, err := r.find(name, version)
	return err
}

// find returns the contract, and the place of the upcaster of that version, -1 for none.
func (r *Registry) find(name string, version int) (*Contract, int, error) {
	c := r.byName[name]
	if c == nil {
		return nil, -1, outmill.Permanent(unknownName(name))
	}
	if version == c.version {
		return c, -1, nil
	}
	for i, up := range c.upcasters {
		if up.from == version {
			return c, i, nil
		}
	}
	return nil, -1, outmill.Permanent(c.unknownVersion(version))
}

// Encoded is a value that is ready to be published.
type Encoded struct {
	Contract Contract
	Payload  []byte
	// OccurredAt is what the value's method OccurredAt() time.Time returns; zero for none.
	OccurredAt time.Time
}

// Encode checks a value and encodes it. It is for marshalers: an application uses
// [Registry.Marshaler], or that of contracts/cloudevents.
//
// Errors: ErrUnknownContract for a type that is not registered, ErrInvalidMessage for a nil
// pointer, for what the value's method Validate() error refuses, and for what cannot be
// encoded.
func (r *Registry) Encode(v any) (Encoded, error) {
	c := r.byType[reflect.TypeOf(v)]
	if c == nil {
		return Encoded{}, unknownType(v)
	}
	pointer, err := pointerTo(v)
	if err == nil {
		err = validate(pointer)
	}
	encoded := Encoded{Contract: *c}
	if err == nil {
		encoded.Payload, err = c.codec.Marshal(pointer)
	}
	if err != nil {
		return Encoded{}, &MessageError{Name: c.name, Version: c.version, Kind: ErrInvalidMessage, Err: err}
	}
	if event, ok := pointer.(interface{ OccurredAt() time.Time }); ok {
		encoded.OccurredAt = event.OccurredAt()
	}
	return encoded, nil
}

var errNilPointer = errors.New("the value is a nil pointer")

// pointerTo has a value and a pointer to it validated and encoded alike, with the methods of
// either.
func pointerTo(v any) (any, error) {
	value := reflect.ValueOf(v)
	if value.Kind() != reflect.Pointer {
		pointer := reflect.New(value.Type())
		pointer.Elem().Set(value)
		return pointer.Interface(), nil
	}
	if value.IsNil() {
		return nil, errNilPointer
	}
	return v, nil
}

func validate(pointer any) error {
	if value, ok := pointer.(interface{ Validate() error }); ok {
		if err := value.Validate(); err != nil {
			return fmt.Errorf("its Validate method refuses it: %w", err)
		}
	}
	return nil
}

// Decode fills v, a pointer to a value of the contract's type, from a payload of that
// version. It is for marshalers: see [Registry.Encode]. It does not keep the payload, and v is
// undefined after an error.
//
// All errors are permanent, except for those of an upcaster that say otherwise
// (outmill.RetryAfter): ErrUnknownContract for an unknown name or version, and
// ErrUnreadableMessage.
func (r *Registry) Decode(name string, version int, payload []byte, v any) error {
	c, from, err := r.find(name, version)
	if err != nil {
		return err
	}
	switch {
	case reflect.TypeOf(v) != reflect.PointerTo(c.typ):
		err = fmt.Errorf("it is decoded into %T: want *%s", v, c.typ)
	case reflect.ValueOf(v).IsNil():
		err = errNilPointer
	case from >= 0:
		err = c.upcast(from, payload, v)
	default:
		err = c.codec.Unmarshal(payload, v)
	}
	if err != nil {
		return outmill.Permanent(&MessageError{Name: c.name, Version: version, Kind: ErrUnreadableMessage, Err: err})
	}
	return nil
}
