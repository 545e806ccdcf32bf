package contracts

import (
	"errors"
	"reflect"

	"github.com/outmill/outmill"
)

// UpcastFrom lets the contract read payloads of an older version. The payload is decoded into
// Old, and convert turns it into the next version: the version that the next UpcastFrom
// reads, or after the last one the contract's own. So a contract with three versions has
// UpcastFrom(1, …) from the first type to the second, and UpcastFrom(2, …) from the second to
// the third. One type may be used for several versions. Old and New may be pointers. If the
// program no longer has the old type, Old may be a map[string]any.
//
// An error of convert is permanent, unless outmill.RetryAfter or outmill.Snooze made it. The
// record's last error and logs contain its text, so keep the payload out of it. convert may
// be called concurrently.
func UpcastFrom[Old, New any](version int, convert func(Old) (New, error), encoding ...Encoding) Option {
	return option(func(c *Contract) {
		up := upcaster{from: version}
		up.in = c.base(reflect.TypeFor[Old](), "the argument of UpcastFrom")
		up.out = c.base(reflect.TypeFor[New](), "the result of UpcastFrom")
		if convert == nil {
			c.refuse("the function of UpcastFrom(%d, …) is nil", version)
			return
		}
		for _, e := range encoding {
			if outmill.IsNil(e.codec) {
				c.refuse("the codec of UpcastFrom(%d, …) is nil", version)
			}
			up.codec = e.codec
		}
		up.convert = func(old any) (any, error) { return converted(convert(argument[Old](old))) }
		c.upcasters = append(c.upcasters, up)
	})
}

// upcaster converts one version to the next. It takes and returns pointers.
type upcaster struct {
	from    int
	in, out reflect.Type
	// codec is nil if the contract's codec is used.
	codec   Codec
	convert func(old any) (any, error)
}

// argument returns the argument for convert: the pointer, or the value that it points to.
func argument[Old any](pointer any) Old {
	if old, ok := pointer.(Old); ok {
		return old
	}
	return *pointer.(*Old)
}

var errNilResult = errors.New("the upcaster returned nil")

func converted[New any](result New, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	if reflect.TypeFor[New]().Kind() != reflect.Pointer {
		return &result, nil
	}
	if outmill.IsNil(result) {
		return nil, errNilResult
	}
	return result, nil
}

// upcast decodes a payload of the version at this index, converts it to the newest version,
// and stores it in v.
func (c *Contract) upcast(first int, payload []byte, v any) error {
	codec := c.upcasters[first].codec
	if codec == nil {
		codec = c.codec
	}
	value := reflect.New(c.upcasters[first].in).Interface()
	if err := codec.Unmarshal(payload, value); err != nil {
		return err
	}
	for _, up := range c.upcasters[first:] {
		var err error
		if value, err = up.convert(value); err != nil {
			return err
		}
	}
	if setter, ok := c.codec.(Setter); ok {
		return setter.Set(v, value)
	}
	reflect.ValueOf(v).Elem().Set(reflect.ValueOf(value).Elem())
	return nil
}
