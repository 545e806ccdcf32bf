package contracts

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/outmill/outmill"
)

// MaxVersion is the highest version that a contract may have.
const MaxVersion = 1<<31 - 1

// Contract is a Go type with a stable name and a version. [Of] makes it; give it to
// [NewRegistry]. It is immutable.
type Contract struct {
	name      string
	version   int
	typ       reflect.Type
	codec     Codec
	upcasters []upcaster
	// watermill has the names that Watermill's marshalers wrote for the type.
	watermill []watermillName
	// problems are the reasons for which NewRegistry refuses the contract.
	problems []string
}

// Option is a setting of a contract: [UpcastFrom], [EncodedBy], or [FromWatermill].
type Option interface{ apply(*Contract) }

type option func(*Contract)

func (o option) apply(c *Contract) { o(c) }

// Of makes the contract of the types T and *T: messages of their values have this name and
// version:
//
//	contracts.Of[OrderPlaced]("orders.order-placed", 2, contracts.UpcastFrom(1, fromV1))
//	contracts.Of[Page[Order]]("orders.page", 1)
//
// The name identifies the contract as long as a message with it exists, even if the Go type
// is renamed or moved. It has 1 to 255 characters (UTF-16 units), no blanks at its ends and
// no control characters. The version is 1 to MaxVersion. Increase it if readers of the
// current version would misunderstand the new payload. There is no default name, because a
// name made from the Go type would change with the type.
//
// T must be a type that can be decoded into: no interface, function, channel, or pointer to a
// pointer. Of[*T] is the same as Of[T]. Of itself reports nothing: NewRegistry returns an
// error for an invalid contract.
func Of[T any](name string, version int, options ...Option) Contract {
	c := Contract{name: name, version: version, codec: JSON{}}
	c.typ = c.base(reflect.TypeFor[T](), "the type")
	if reason := nameReason(name); reason != "" {
		c.refuse("the name %s", reason)
	}
	if version < 1 || version > MaxVersion {
		c.refuse("version %d: want 1 to %d", version, MaxVersion)
	}
	for _, opt := range options {
		if outmill.IsNil(opt) {
			c.refuse("an option is nil")
			continue
		}
		opt.apply(&c)
	}
	c.checkVersions()
	return c
}

// Name returns the stable name.
func (c Contract) Name() string { return c.name }

// Version returns the version in which values are published.
func (c Contract) Version() int { return c.version }

// Type returns the Go type, which is not a pointer.
func (c Contract) Type() reflect.Type { return c.typ }

// ContentType returns the media type of the payloads of the current version.
func (c Contract) ContentType() string { return c.codec.ContentType() }

// Versions returns the versions that can be read, in ascending order.
func (c Contract) Versions() []int {
	versions := make([]int, 0, len(c.upcasters)+1)
	for _, up := range c.upcasters {
		versions = append(versions, up.from)
	}
	return append(versions, c.version)
}

// Encoding sets the codec of payloads. It is an [Option] of a contract, and of [UpcastFrom].
// [EncodedBy] makes it.
type Encoding struct{ codec Codec }

// EncodedBy makes the codec encode and decode the payloads of the contract, in all versions
// whose UpcastFrom has no codec of its own. Without it payloads are JSON.
func EncodedBy(codec Codec) Encoding { return Encoding{codec} }

func (e Encoding) apply(c *Contract) {
	if outmill.IsNil(e.codec) {
		c.refuse("the codec of EncodedBy is nil")
		return
	}
	c.codec = e.codec
}

// refuse adds a problem, which NewRegistry reports.
func (c *Contract) refuse(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// base returns the type without its pointer.
func (c *Contract) base(t reflect.Type, which string) reflect.Type {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Interface, reflect.Pointer, reflect.Func, reflect.Chan, reflect.UnsafePointer:
		c.refuse("%s is %s: want a type that can be decoded into, such as a struct", which, t)
	default:
	}
	return t
}

// checkVersions sorts the older versions, and refuses upcasters that do not lead to the next
// version.
func (c *Contract) checkVersions() {
	slices.SortStableFunc(c.upcasters, func(a, b upcaster) int { return a.from - b.from })
	for i, up := range c.upcasters {
		if up.from < 1 || up.from >= c.version {
			c.refuse("UpcastFrom(%d, …): want a version from 1 to below the contract's, %d", up.from, c.version)
		}
		next, taker := c.typ, "the contract is of"
		if i+1 < len(c.upcasters) {
			if c.upcasters[i+1].from == up.from {
				c.refuse("UpcastFrom(%d, …) is there twice", up.from)
			}
			next, taker = c.upcasters[i+1].in, fmt.Sprintf("UpcastFrom(%d, …) takes", c.upcasters[i+1].from)
		}
		if up.out != next {
			c.refuse("UpcastFrom(%d, …) returns %s, but %s %s: each upcaster leads to the next version", up.from, up.out, taker, next)
		}
	}
	for _, old := range c.watermill {
		if !slices.Contains(c.Versions(), old.version) {
			c.refuse("FromWatermill(%s, %d): want a version that the contract has", quote(old.name), old.version)
		}
	}
}

func nameReason(name string) string {
	switch {
	case name == "":
		return fmt.Sprintf("is empty: want 1 to %d characters", outmill.MaxTextLength)
	case !utf8.ValidString(name):
		return "is not valid UTF-8"
	case len(utf16.Encode([]rune(name))) > outmill.MaxTextLength:
		return fmt.Sprintf("is too long: want at most %d characters", outmill.MaxTextLength)
	case strings.TrimSpace(name) != name:
		return "begins or ends with a blank: trim it"
	case strings.ContainsFunc(name, unicode.IsControl):
		return "has a control character: leave it out"
	}
	return ""
}
