package importmongo

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
)

// template is a text in which {a.b} is replaced by a field of a document.
type template string

var place = regexp.MustCompile(`\{([^{}]*)\}`)

func (t template) check(flag string) error {
	rest := place.ReplaceAllString(string(t), "")
	if strings.ContainsAny(rest, "{}") || strings.Contains(string(t), "{}") {
		return fmt.Errorf("%w: %s is %q: want a text with fields such as {type}", outmill.ErrInvalidConfig, flag, string(t))
	}
	return nil
}

// fill returns the text for a document, and whether it has all the fields.
func (t template) fill(doc bson.Raw) (text string, complete bool, err error) {
	complete = true
	text = place.ReplaceAllStringFunc(string(t), func(field string) string {
		field = strings.Trim(field, "{}")
		value, found, e := plain(doc, field)
		if e != nil {
			err = e
		}
		complete = complete && found
		return value
	})
	return text, complete, err
}

// plain returns a field as text if its value has only one spelling.
func plain(doc bson.Raw, field string) (text string, found bool, err error) {
	value := doc.Lookup(strings.Split(field, ".")...)
	switch value.Type {
	case 0, bson.TypeNull, bson.TypeUndefined:
		return "", false, nil
	case bson.TypeString:
		return value.StringValue(), true, nil
	case bson.TypeObjectID:
		return value.ObjectID().Hex(), true, nil
	case bson.TypeInt32, bson.TypeInt64:
		return strconv.FormatInt(value.AsInt64(), 10), true, nil
	default:
		return "", false, fmt.Errorf("field %s is a %s: want a string, a whole number or an ObjectId", field, value.Type)
	}
}
