package outmilltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// A Matcher checks the record of a published message and returns the mismatch; "" is a
// match. It must not change the record.
type Matcher func(rec *outmill.Record) string

// Any matches every message; it is for messages of RequireManyPublished that the test does
// not check.
func Any() Matcher { return func(*outmill.Record) string { return "" } }

// All matches a message that all of the matchers match.
func All(matchers ...Matcher) Matcher {
	return func(rec *outmill.Record) string {
		for _, match := range matchers {
			if match == nil {
				return "the matcher is nil"
			}
			if mismatch := match(rec); mismatch != "" {
				return mismatch
			}
		}
		return ""
	}
}

// MessageID matches the Watermill message UUID.
func MessageID(want string) Matcher {
	return func(rec *outmill.Record) string { return compare("message id", rec.MessageID, want) }
}

// Key matches the key (outmill.SetKey); "" is none.
func Key(want string) Matcher {
	return func(rec *outmill.Record) string { return compare("key", rec.Key, want) }
}

// Metadata matches one entry of the metadata, as a handler gets it: key, correlation id and
// the like have their names there, but instructions for the publish (delay, expiry, dedup
// key) are missing. A missing entry is "".
func Metadata(name, want string) Matcher {
	return func(rec *outmill.Record) string {
		return compare(fmt.Sprintf("metadata %q", name), metadataOf(rec)[name], want)
	}
}

// Payload matches the payload byte for byte. Payload(nil) matches a nil payload, which is a
// tombstone in Kafka, and no empty one.
func Payload(want []byte) Matcher {
	return func(rec *outmill.Record) string {
		if bytes.Equal(rec.Payload, want) && (rec.Payload == nil) == (want == nil) {
			return ""
		}
		return fmt.Sprintf("payload is %s, want %s", show(rec.Payload), show(want))
	}
}

// PayloadJSON matches a payload that is the same JSON value: white space and the order of
// members do not matter, but numbers must have the same text. A string, []byte or
// json.RawMessage is JSON text; any other value is marshaled.
func PayloadJSON(want any) Matcher {
	text, err := jsonText(want)
	if err != nil {
		return refuse(fmt.Sprintf("PayloadJSON got a value that is not JSON: %v", err))
	}
	wanted, err := decodeJSON(text)
	if err != nil {
		return refuse(fmt.Sprintf("PayloadJSON got a value that is not JSON: %s: %v", show(text), err))
	}
	return func(rec *outmill.Record) string {
		got, err := decodeJSON(rec.Payload)
		switch {
		case err != nil:
			return fmt.Sprintf("payload is not JSON: %s: %v", show(rec.Payload), err)
		case !reflect.DeepEqual(got, wanted):
			return fmt.Sprintf("payload is %s, want the JSON %s", show(rec.Payload), show(text))
		}
		return ""
	}
}

// DueAtOnce matches a message that was published without a delay, or with a due time in the
// past.
func DueAtOnce() Matcher {
	return func(rec *outmill.Record) string {
		if rec.DueAt.After(rec.CreatedAt) {
			return fmt.Sprintf("is due %s after it was published, want at once", rec.DueAt.Sub(rec.CreatedAt))
		}
		return ""
	}
}

// DueIn matches a message whose first delivery was postponed by delay, with the tolerance
// within, by the database's clock.
func DueIn(delay, within time.Duration) Matcher {
	return func(rec *outmill.Record) string {
		got := rec.DueAt.Sub(rec.CreatedAt)
		if (got - delay).Abs() <= within {
			return ""
		}
		return fmt.Sprintf("is due %s after it was published, want %s within %s", got, delay, within)
	}
}

// DueAt matches a message whose first delivery was postponed until want, with the tolerance
// within.
func DueAt(want time.Time, within time.Duration) Matcher {
	return func(rec *outmill.Record) string {
		if rec.DueAt.Sub(want).Abs() <= within {
			return ""
		}
		return fmt.Sprintf("is due at %s, want %s within %s", rec.DueAt.Format(time.RFC3339Nano), want.Format(time.RFC3339Nano), within)
	}
}

func refuse(reason string) Matcher { return func(*outmill.Record) string { return reason } }

func compare(what, got, want string) string {
	if got == want {
		return ""
	}
	return fmt.Sprintf("%s is %q, want %q", what, got, want)
}

// metadataOf works on a copy, because MessageOf adds to the record's own map.
func metadataOf(rec *outmill.Record) map[string]string {
	copied := *rec
	copied.Metadata = maps.Clone(rec.Metadata)
	return storekit.MessageOf(&copied).Metadata
}

func jsonText(value any) ([]byte, error) {
	switch v := value.(type) {
	case string:
		return []byte(v), nil
	case []byte:
		return v, nil
	case json.RawMessage:
		return v, nil
	}
	return json.Marshal(value)
}

// decodeJSON keeps the text of numbers, because two different ids of 17 digits may be equal
// as float64.
func decodeJSON(text []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, fmt.Errorf("more follows after the first value")
	}
	return value, nil
}
