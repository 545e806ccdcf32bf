package driver

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// sqlNow is the time of the database's clock in microseconds, whatever the time zone of the session is.
const sqlNow = `TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))`

// fragment is a part of a statement, which stands in it as it is.
type fragment string

// large is a value that is sent as a parameter: in hexadecimal digits it would need twice its size of a packet.
type large []byte

// names replaces {p:records} by the quoted name of the table records.
func (d *Driver) names(template string) string {
	if text, known := d.named.Load(template); known {
		return text.(string)
	}
	text := strings.ReplaceAll(template, "{now}", d.now())
	text = placeholder.ReplaceAllString(text, "`"+d.config.Prefix+"$1`")
	if d.config.Ahead == nil {
		d.named.Store(template, text)
	}
	return text
}

func (d *Driver) now() string {
	if d.config.Ahead == nil {
		return sqlNow
	}
	return "(" + sqlNow + " + " + strconv.FormatInt(d.config.Ahead().Microseconds(), 10) + ")"
}

// text returns a statement with its values, and the large ones. ? stands for the next value, and ?2 for the second one.
func (d *Driver) text(template string, values ...any) (text string, parameters []any) {
	template = d.names(template)
	made := make([]byte, 0, len(template)+32*len(values))
	for next := 0; ; next++ {
		before, rest, more := strings.Cut(template, "?")
		if made = append(made, before...); !more {
			return string(made), parameters
		}
		n := next
		if rest != "" && rest[0] >= '1' && rest[0] <= '9' {
			n, rest = int(rest[0]-'1'), rest[1:]
		}
		template = rest
		if value, is := values[n].(large); is {
			made, parameters = append(made, '?'), append(parameters, []byte(value))
			continue
		}
		made = appendValue(made, values[n])
	}
}

// part is text for a part of a statement.
func (d *Driver) part(template string, values ...any) fragment {
	text, _ := d.text(template, values...)
	return fragment(text)
}

func appendValue(to []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(to, "NULL"...)
	case fragment:
		return append(to, v...)
	case string:
		return appendHex(to, v)
	case []byte:
		if v == nil {
			return append(to, "NULL"...)
		}
		return appendHex(to, v)
	case outmill.WorkItemID:
		return appendHex(to, v[:])
	case int:
		return strconv.AppendInt(to, int64(v), 10)
	case int64:
		return strconv.AppendInt(to, v, 10)
	case driver.Time:
		return strconv.AppendInt(to, int64(v), 10)
	case driver.Stage:
		return strconv.AppendInt(to, int64(v), 10)
	case bool:
		if v {
			return append(to, '1')
		}
		return append(to, '0')
	case []int64:
		return appendList(to, v)
	case []string:
		return appendList(to, v)
	case []outmill.WorkItemID:
		return appendList(to, v)
	}
	panic(fmt.Sprintf("a statement has a %T", value))
}

// appendList is for IN: NULL is equal to nothing.
func appendList[T any](to []byte, list []T) []byte {
	if len(list) == 0 {
		return append(to, "NULL"...)
	}
	for i, value := range list {
		if i > 0 {
			to = append(to, ", "...)
		}
		to = appendValue(to, value)
	}
	return to
}

func appendHex[T ~string | ~[]byte](to []byte, value T) []byte {
	to = append(to, "x'"...)
	to = hex.AppendEncode(to, []byte(value))
	return append(to, '\'')
}

// union joins selects.
func union(selects []fragment) fragment {
	texts := make([]string, len(selects))
	for i, s := range selects {
		texts[i] = string(s)
	}
	return fragment(strings.Join(texts, "\nUNION ALL "))
}

// idOf is NULL for none.
func idOf[ID ~[16]byte](id ID) any {
	if bytes := [16]byte(id); bytes != [16]byte{} {
		return bytes[:]
	}
	return nil
}

// inLists joins a condition for each list of names. of returns the list of an item, and its name in that list.
func inLists[T any, L comparable](
	items []T, of func(item T) (list L, name string), condition func(list L, names []string) fragment,
) fragment {
	var lists []L
	names := map[L][]string{}
	for _, item := range items {
		list, name := of(item)
		if names[list] == nil {
			lists = append(lists, list)
		}
		names[list] = append(names[list], name)
	}
	var all fragment
	for i, list := range lists {
		if i > 0 {
			all += " OR "
		}
		all += condition(list, names[list])
	}
	return all
}
