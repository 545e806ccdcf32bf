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

// Registry has the contracts of a program. [NewRegistry] makes it. It is immutable and safe
// for concurrent use.
type Registry struct {
	byName map[string]*Contract
	// byType has an entry for each type, and one for the pointer to it.
	byType    map[reflect.Type]*Contract
	watermill map[string]watermillContract
}

// NewRegistry makes a registry, or returns all errors joined: ErrInvalidContract for an
// invalid contract, and ErrDuplicateContract if two contracts have the same name or type. A
// name has one contract with one current version; [UpcastFrom] adds older versions.
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

// Contracts returns all contracts, sorted by name, for example to list them in documentation.
func (r *Registry) Contracts() []Contract {
	all := make([]Contract, 0, len(r.byName))
	for _, c := range r.byName {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b Contract) int { return cmp.Compare(a.name, b.name) })
	return all
}

// ContractOf returns the contract of the type of v, or of the type that v points to; the
// pointer may be nil. The error is an [UnknownContractError].
//
// Use it to make topics from contracts, so that a handler of an unregistered type is an error
// at the start:
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

// Name returns the name of the contract of v, for marshalers. If the type of v is not
// registered, it returns a text that says so and that cannot be the name of a contract;
// [Registry.ContractOf] returns an error instead.
func (r *Registry) Name(v any) string {
	if c := r.byType[reflect.TypeOf(v)]; c != nil {
		return c.name
	}
	return fmt.Sprintf("\tno contract: type %T is not registered", v)
}

// RefuseUnknown makes the middleware of a marshaler: see [Marshaler.RefuseUnknown]. identify
// returns the name and the version of a message's contract.
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

// Check returns nil if the registry can read messages of this contract and version, and a
// permanent [UnknownContractError] otherwise.
func (r *Registry) Check(name string, version int) error {
	_, _, err := r.find(name, version)
	return err
}

// find returns the contract, and the index of the upcaster from this version, or -1 for the
// current version.
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

// Encoded is an encoded value with its contract. [Registry.Encode] returns it.
type Encoded struct {
	Contract Contract
	Payload  []byte
	// OccurredAt is the result of the value's method OccurredAt() time.Time, or zero if it has
	// no such method.
	OccurredAt time.Time
}

// Encode validates and encodes a value. It is for marshalers: an application uses
// [Registry.Marshaler], or the marshaler of contracts/cloudevents.
//
// Errors: ErrUnknownContract if the type is not registered; ErrInvalidMessage if the value is
// a nil pointer, its method Validate() error returns an error, or it cannot be encoded.
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

// pointerTo returns a pointer to the value, so that values and pointers are validated and
// encoded in the same way, with the methods of both.
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
			return fmt.Errorf("its Validate method returned an error: %w", err)
		}
	}
	return nil
}

// Decode decodes a payload of this version into v, a pointer to a value of the contract's
// type. It is for marshalers: see [Registry.Encode]. It does not keep the payload. v is
// undefined after an error.
//
// Errors: ErrUnknownContract for an unknown name or version, and ErrUnreadableMessage for a
// payload that does not fit or that an upcaster refuses. They are permanent, except for an
// upcaster's outmill.RetryAfter or Snooze.
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
