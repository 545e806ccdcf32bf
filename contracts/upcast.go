package contracts

import (
	"errors"
	"reflect"

	"github.com/outmill/outmill"
)

// UpcastFrom has the contract read payloads of an older version. They are decoded into Old,
// and convert makes of it what the next version has. The next version is the one that the
// next UpcastFrom takes, or the contract's own after the last. So of three versions, the
// contract has UpcastFrom(1, …) from the first type to the second, and UpcastFrom(2, …) from
// the second to the third. The same type may stand for several versions. Both may be pointers;
// Old may be a map[string]any where the old type is gone.
//
// A convert that returns an error makes the record dead, unless the error is one of
// outmill.RetryAfter or Snooze. It may be called concurrently. The error's text goes to the
// record's last error and to logs, so keep the payload out of it.
func UpcastFrom[Old, New any](version int, convert func(Old) (New, error), encoding ...Encoding) Option {
	return option(func(c *Contract) {
		up := upcaster{from: version}
		up.in = c.base(reflect.TypeFor[Old](), "what UpcastFrom takes")
		up.out = c.base(reflect.TypeFor[New](), "what UpcastFrom returns")
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

// upcaster leads from one version to the next. Values go through it as pointers.
type upcaster struct {
	from    int
	in, out reflect.Type
	// codec is nil where it is the contract's.
	codec   Codec
	convert func(old any) (any, error)
}

// argument makes of a pointer what convert takes: that pointer, or the value behind it.
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

// upcast decodes a payload of the version at that place, and fills v.
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
