package driver

import (
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/mongo/internal/jsondoc"
	"github.com/outmill/outmill/storekit"
)

// firstSecond is that of the smallest Seq. The server sets the Seq of a document when it gets it: seconds, and a number. So
// the numbers of a driver end in 2072.
const firstSecond = 1 << 30

func seqOf(seconds, n uint32) int64 { return (int64(seconds)-firstSecond)<<32 | int64(n) }

func timestampOf(seq int64) bson.Timestamp {
	if seq <= 0 {
		return bson.Timestamp{}
	}
	return bson.Timestamp{T: uint32(seq>>32 + firstSecond), I: uint32(seq)}
}

func uuid(id [16]byte) bson.Binary {
	return bson.Binary{Subtype: bson.TypeBinaryUUID, Data: id[:]}
}

// fields reads the fields of a document. Their types and values are not certain: somebody may have changed them by hand.
type fields struct {
	// of begins the names of the fields.
	of    string
	wrong []string
	// escaped is the content's fieldEscaped.
	escaped bool
}

func (f *fields) refuse(field, want string, have bsoncore.Value) {
	text := have.String()
	if len(text) > 40 {
		text = text[:40] + "…"
	}
	f.wrong = append(f.wrong, fmt.Sprintf("field %s: want %s, have %s", f.of+field, want, strings.ToValidUTF8(text, "?")))
}

func (f *fields) text(field string, v bsoncore.Value, into *string) {
	text, ok := v.StringValueOK()
	if !ok {
		f.refuse(field, "a text", v)
	}
	*into = text
}

func (f *fields) number(field string, v bsoncore.Value, into *int) {
	n, ok := wholeNumber(v)
	if !ok || n < 0 || n > 1<<40 {
		f.refuse(field, "a number from 0 on", v)
		n = 0
	}
	*into = int(n)
}

func (f *fields) time(field string, v bsoncore.Value, into *driver.Time) {
	n, ok := wholeNumber(v)
	if t := driver.Time(n); !ok || t < -driver.Never || t > driver.Never {
		f.refuse(field, "a time in microseconds", v)
		n = 0
	}
	*into = driver.Time(n)
}

// wholeNumber also reads a double that mongosh has written.
func wholeNumber(v bsoncore.Value) (int64, bool) {
	if n, ok := v.AsInt64OK(); ok && v.Type != bsoncore.TypeDouble {
		return n, true
	}
	d, ok := v.DoubleOK()
	return int64(d), ok && d == float64(int64(d))
}

func (f *fields) id(field string, v bsoncore.Value, into *[16]byte) {
	_, data, ok := v.BinaryOK()
	if !ok || len(data) != len(into) {
		f.refuse(field, "a UUID", v)
		return
	}
	copy(into[:], data)
}

// each calls use with each field of a document.
func each(raw []byte, use func(field string, v bsoncore.Value)) {
	elements, err := bsoncore.Document(raw).Elements()
	if err != nil {
		return
	}
	for _, e := range elements {
		use(e.Key(), e.Value())
	}
}

// readRow returns the row of a document. What is no possible value is zero, and named in Broken.
func readRow(raw bson.Raw) (r driver.Row) {
	var f fields
	group, topic := "", ""
	each(raw, func(field string, v bsoncore.Value) {
		switch field {
		case "_id":
			f.id(field, v, (*[16]byte)(&r.ID))
		case "seq":
			seconds, n, ok := v.TimestampOK()
			if !ok {
				f.refuse(field, "a timestamp", v)
			}
			r.Seq = seqOf(seconds, n)
		case "grp":
			f.text(field, v, &group)
		case "topic":
			f.text(field, v, &topic)
		case "key":
			f.text(field, v, &r.Key)
		case "tenant":
			f.text(field, v, &r.Tenant)
		case "created":
			f.time(field, v, &r.Created)
		case "size":
			f.number(field, v, &r.Size)
		case "step":
			f.id(field, v, (*[16]byte)(&r.Step))
		case "waits_for":
			f.id(field, v, (*[16]byte)(&r.WaitsFor))
		default:
			f.state(field, v, &r)
		}
	})
	r.Line = driver.LineOf(group, topic)
	r.Broken = strings.Join(f.wrong, "; ")
	return r
}

func (f *fields) state(field string, v bsoncore.Value, r *driver.Row) {
	switch field {
	case "stage":
		n, ok := wholeNumber(v)
		if r.Stage = driver.Stage(n); !ok || r.Stage < driver.Ready || r.Stage > driver.Dead {
			r.Stage = 0
			f.refuse(field, "a stage", v)
		}
	case "wake":
		f.time(field, v, &r.Wake)
	case "next":
		f.time(field, v, &r.Next)
	case "expires":
		f.time(field, v, &r.Expires)
	case "attempts":
		f.number(field, v, &r.Attempts)
	case "claims":
		f.number(field, v, &r.Claims)
	case "expiries":
		f.number(field, v, &r.Expiries)
	case "owner":
		f.text(field, v, &r.Owner)
	case "worker":
		f.text(field, v, &r.Worker)
	case "under":
		f.text(field, v, &r.Under)
	case "parked":
		is, ok := v.BooleanOK()
		if r.Parked = is; !ok {
			f.refuse(field, "true", v)
		}
	case "processed":
		f.time(field, v, &r.Processed)
	case "by":
		f.text(field, v, &r.By)
	}
}

func readRows(list []bson.Raw) []driver.Row {
	rows := make([]driver.Row, len(list))
	for i, raw := range list {
		rows[i] = readRow(raw)
	}
	return rows
}

// appendRow appends the document of a new row. Fields that are zero are left out, but for those that searches compare.
func (d *Driver) appendRow(dst []byte, n *driver.NewRow, tells *notice) []byte {
	start, dst := bsoncore.AppendDocumentStart(dst)
	dst = bsoncore.AppendBinaryElement(dst, "_id", bson.TypeBinaryUUID, n.ID[:])
	// The server sets it to a place of its own.
	dst = bsoncore.AppendTimestampElement(dst, "seq", 0, 0)
	text := func(field, value string) {
		if value != "" {
			dst = bsoncore.AppendStringElement(dst, field, value)
		}
	}
	number := func(field string, value int64) {
		if value != 0 {
			dst = bsoncore.AppendInt64Element(dst, field, value)
		}
	}
	dst = bsoncore.AppendStringElement(dst, "grp", n.Group)
	dst = bsoncore.AppendStringElement(dst, "topic", n.Name())
	dst = bsoncore.AppendInt32Element(dst, "stage", int32(n.Stage))
	dst = bsoncore.AppendInt64Element(dst, "wake", int64(n.Wake))
	dst = bsoncore.AppendInt32Element(dst, "claims", int32(n.Claims))
	text("key", n.Key)
	text("tenant", n.Tenant)
	number("created", int64(n.Created))
	number("next", int64(n.Next))
	number("expires", int64(n.Expires))
	number("size", int64(n.Size))
	if !n.Step.IsZero() {
		dst = bsoncore.AppendBinaryElement(dst, "step", bson.TypeBinaryUUID, n.Step[:])
	}
	if !n.WaitsFor.IsZero() {
		dst = bsoncore.AppendBinaryElement(dst, "waits_for", bson.TypeBinaryUUID, n.WaitsFor[:])
	}
	dst = d.appendContent(tells.appendTo(dst, n), n)
	dst, _ = bsoncore.AppendDocumentEnd(dst, start)
	return dst
}

// appendContent appends the content, which is a document of its own so that reads of rows leave it out by one name.
func (d *Driver) appendContent(dst []byte, n *driver.NewRow) []byte {
	start, dst := bsoncore.AppendDocumentElementStart(dst, "content")
	text := func(field, value string) {
		if value != "" {
			dst = bsoncore.AppendStringElement(dst, field, value)
		}
	}
	r := n.Record
	text("message", n.Message)
	text("correlation", r.CorrelationID)
	text("causation", r.CausationID)
	text("trace_parent", r.TraceParent)
	text("trace_state", r.TraceState)
	text("dedup", r.DedupKey)
	dst = bsoncore.AppendInt64Element(dst, "due", int64(max(n.Next, n.Created)))
	if len(r.Joins) > 0 {
		var list int32
		list, dst = bsoncore.AppendArrayElementStart(dst, "joins")
		for i := range r.Joins {
			dst = bsoncore.AppendBinaryElement(dst, fmt.Sprint(i), bson.TypeBinaryUUID, r.Joins[i][:])
		}
		dst, _ = bsoncore.AppendArrayEnd(dst, list)
	}
	if n.Metadata != "" && n.Metadata != "{}" {
		dst = bsoncore.AppendStringElement(dst, "metadata", n.Metadata)
	}
	if r.Payload != nil {
		payload, escaped := d.payloadOf(n)
		dst = bsoncore.AppendValueElement(dst, "payload", payload)
		if escaped {
			dst = bsoncore.AppendBooleanElement(dst, fieldEscaped, true)
		}
	}
	dst, _ = bsoncore.AppendDocumentEnd(dst, start)
	return dst
}

// fieldEscaped says that the payload is a document, and that its JSON escapes HTML.
const fieldEscaped = "payload_escaped"

// payloadOf is the value of a payload: bytes, or a document that leaves room for the other fields. See Config.EmbedJSON.
func (d *Driver) payloadOf(n *driver.NewRow) (value bsoncore.Value, escaped bool) {
	payload := n.Record.Payload
	if d.config.EmbedJSON {
		others := n.Size - len(payload)
		if document, escaped, ok := jsondoc.Of(payload, min(d.config.MaxPayload, int(d.Limits().Row)-2*others)); ok {
			return bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: document}, escaped
		}
	}
	return bsoncore.Value{Type: bsoncore.TypeBinary, Data: bsoncore.AppendBinary(nil, bson.TypeBinaryGeneric, payload)}, false
}

// readContent returns the content of a document.
func readContent(raw bson.Raw) (c driver.Content) {
	f := fields{of: "content."}
	r := &outmill.Record{}
	c.Record = r
	content, _ := raw.Lookup("content").DocumentOK()
	f.escaped, _ = content.Lookup(fieldEscaped).BooleanOK()
	each(content, func(field string, v bsoncore.Value) {
		switch field {
		case "message":
			f.text(field, v, &r.MessageID)
		case "correlation":
			f.text(field, v, &r.CorrelationID)
		case "causation":
			f.text(field, v, &r.CausationID)
		case "trace_parent":
			f.text(field, v, &r.TraceParent)
		case "trace_state":
			f.text(field, v, &r.TraceState)
		case "dedup":
			f.text(field, v, &r.DedupKey)
		case "error":
			f.text(field, v, &r.LastError)
		case "due":
			var due driver.Time
			f.time(field, v, &due)
			r.DueAt = due.Of()
		default:
			f.large(field, v, &c)
		}
	})
	c.Broken = strings.Join(f.wrong, "; ")
	return c
}

func (f *fields) large(field string, v bsoncore.Value, c *driver.Content) {
	r := c.Record
	switch field {
	case "payload":
		if document, ok := v.DocumentOK(); ok {
			r.Payload = jsondoc.Text(bson.Raw(document), f.escaped)
			return
		}
		_, data, ok := v.BinaryOK()
		if !ok {
			f.refuse(field, "bytes or a document", v)
			return
		}
		r.Payload = append([]byte{}, data...)
	case "metadata":
		text := ""
		f.text(field, v, &text)
		var err error
		if r.Metadata, err = storekit.ParseMetadata([]byte(text)); err != nil {
			f.refuse(field, "a JSON object of texts", v)
		}
		if len(r.Metadata) == 0 {
			r.Metadata = nil
		}
	case "joins":
		each(listOf(v), func(_ string, v bsoncore.Value) {
			var id outmill.JoinID
			f.id(field, v, (*[16]byte)(&id))
			r.Joins = append(r.Joins, id)
		})
	case "history":
		var all strings.Builder
		each(listOf(v), func(_ string, v bsoncore.Value) {
			text, _ := v.StringValueOK()
			all.WriteString(text)
		})
		c.History = all.String()
		c.History = c.History[:min(len(c.History), driver.HistoryBytes)]
	}
}

func listOf(v bsoncore.Value) []byte {
	list, _ := v.ArrayOK()
	return list
}
