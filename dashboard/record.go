package dashboard

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

const (
	// maxError and maxPayload are how much of a text the page of a record shows.
	maxError   = 4_096
	maxPayload = 16_384
	maxValue   = 1_000
	// maxMetadata is how many entries of the metadata it shows.
	maxMetadata = 200
)

// fact is a name with a value that is data of users.
type fact struct{ Name, Value string }

// moment is a name with a time.
type moment struct {
	Name string
	At   time.Time
	// By is the operator who did it, and Note what exactly; "" elsewhere.
	By, Note string
}

type recordView struct {
	Record  recordLine
	Facts   []fact
	History []moment
	// Audited says that the store keeps an audit, and MoreAudit leads to the older entries that
	// were not looked at.
	Audited   bool
	MoreAudit string
	// Attempts are the last ones, the newest first, without their errors where these are hidden.
	Attempts []outmill.Attempt
	// Reasons say where the record is and what it waits for.
	Reasons  []reason
	Metadata []fact
	// MoreMetadata counts the entries that are left out.
	MoreMetadata int
	Payload      string
	PayloadSize  string
	PayloadCut   bool
	Joins        []string
	Steps        string
	Error        string
	// Bench says that the store edits and skips records.
	Bench bool
}

// reason is a sentence, with the record or join that it names.
type reason struct{ Text, Record, Join string }

func recordPage(c *call) error {
	id, err := c.id(c.r.URL.Query().Get("id"))
	if err != nil {
		return err
	}
	r, err := c.store.Get(c.ctx, id)
	if err != nil {
		return err
	}
	if c.isMany() && c.tenant == "" && r.Store != "" {
		// What follows asks the record's own store only.
		c.redirect(address("record", r.Store, "id", id.String()))
		return nil
	}
	answer, err := c.why(r.ID.String())
	if err != nil {
		return err
	}
	v := recordView{Record: c.recordLine(r), Facts: facts(r), History: history(r), Attempts: c.attempts(r), Error: c.fullError(r)}
	if err := c.addChanges(&v, r); err != nil {
		return err
	}
	_, v.Bench = outmill.As[roles.Repairs](c.store)
	for _, e := range answer.Explanations {
		if e.Record == r.ID {
			v.Reasons = reasons(e)
		}
	}
	for _, join := range r.Joins {
		v.Joins = append(v.Joins, join.String())
	}
	v.PayloadSize = payloadSize(r)
	if c.config.ShowPayloads {
		v.Payload, v.PayloadCut = payload(r.Payload)
		v.Metadata, v.MoreMetadata = metadata(r.Metadata)
	}
	return c.render(200, "record", "Record", v)
}

func payloadSize(r *outmill.Record) string {
	switch {
	case r.Payload == nil && r.Unreadable != "":
		return "There is no payload that can be read."
	case r.Payload == nil:
		return "The payload is nil."
	}
	return number(len(r.Payload)) + " bytes."
}

func (c *call) id(text string) (outmill.WorkItemID, error) {
	id, err := outmill.ParseWorkItemID(text)
	if err != nil {
		return id, badRequest("The address has no id of a record.")
	}
	return id, nil
}

func (c *call) why(id string) (monitor.Answer, error) {
	// One page of a search: the first answer is quick, also where no index finds a message.
	return monitor.Why(c.ctx, c.store, id, monitor.WhyConfig{
		MaxExamined: 10_000, MaxNeighbours: 1_000, HideErrors: !c.config.ShowErrors})
}

func reasons(e monitor.Explanation) []reason {
	list := make([]reason, len(e.Reasons))
	for i, r := range e.Reasons {
		list[i].Text = r.Text
		if !r.Record.IsZero() {
			list[i].Record = r.Record.String()
		}
		if !r.Join.IsZero() {
			list[i].Join = r.Join.String()
		}
	}
	return list
}

func (c *call) fullError(r *outmill.Record) string {
	if !c.config.ShowErrors {
		return ""
	}
	return cut(r.LastError, maxError)
}

// attempts are the last attempts of the record. Its LastError has the whole error of the newest one.
func (c *call) attempts(r *outmill.Record) []outmill.Attempt {
	list := slices.Clone(r.History)
	for i := range list {
		if !c.config.ShowErrors {
			list[i].Error = ""
		}
	}
	return list
}

// facts are the fields that are set, except those that the page has elsewhere.
func facts(r *outmill.Record) []fact {
	all := []fact{
		{"Record id", r.ID.String()},
		{"Message id", r.MessageID},
		{"Store", r.Store},
		{"Topic", r.Topic},
		{"Group", cmp.Or(r.Group, noGroup)},
		{"Key", r.Key},
		{"Correlation id", r.CorrelationID},
		{"Causation id", r.CausationID},
		{"Tenant id", r.TenantID},
		{"Trace", r.TraceParent},
		{"Attempts", strconv.Itoa(r.Attempts)},
		{"Claims", strconv.Itoa(r.Claims)},
		{"Expired leases", strconv.Itoa(r.Expiries)},
		{"Processed by", r.ProcessedBy},
	}
	if !r.Owner.IsZero() {
		all = append(all, fact{"Leased by", r.Owner.String()})
	}
	if r.Worker != "" {
		all = append(all, fact{"Worker", r.Worker})
	}
	return slices.DeleteFunc(all, func(f fact) bool { return f.Value == "" })
}

// history are the times of the record that are known, in their order.
func history(r *outmill.Record) []moment {
	all := []moment{
		{Name: "Appended", At: r.CreatedAt},
		{Name: "First due", At: r.DueAt},
		{Name: "Due next", At: r.NextAttemptAt},
		{Name: "Lease ends", At: r.LeaseUntil},
		{Name: "Processed", At: r.ProcessedAt},
		{Name: "Expires", At: r.ExpiresAt},
	}
	all = slices.DeleteFunc(all, func(m moment) bool { return m.At.IsZero() })
	return inOrder(all)
}

func inOrder(all []moment) []moment {
	slices.SortStableFunc(all, func(a, b moment) int { return a.At.Compare(b.At) })
	return all
}

func metadata(m map[string]string) (shown []fact, more int) {
	names := slices.Sorted(maps.Keys(m))
	for _, name := range names[:min(len(names), maxMetadata)] {
		shown = append(shown, fact{cut(name, maxValue), cut(m[name], maxValue)})
	}
	return shown, len(names) - len(shown)
}

// payload shows JSON with indents, other text as it is, and the rest as bytes.
func payload(p []byte) (text string, cutOff bool) {
	begin := p[:min(len(p), maxPayload)]
	cutOff = len(begin) < len(p)
	var indented bytes.Buffer
	switch {
	case !cutOff && depth(p) <= maxDepth && json.Indent(&indented, p, "", "  ") == nil:
		return cut(indented.String(), 2*maxPayload), false
	case utf8.Valid(p):
		return clean(string(begin)), cutOff
	}
	const maxDump = 1_024
	return hex.Dump(p[:min(len(p), maxDump)]), len(p) > maxDump
}

// maxDepth is the deepest nesting that is shown with indents. Their size grows with the square of
// the depth: 16 kB of brackets would become 100 MB.
const maxDepth = 32

// depth is how deeply JSON nests.
func depth(text []byte) (deepest int) {
	now, quoted, escaped := 0, false, false
	for _, b := range text {
		switch {
		case escaped:
			escaped = false
		case quoted && b == '\\':
			escaped = true
		case b == '"':
			quoted = !quoted
		case quoted:
		case b == '[' || b == '{':
			now++
			deepest = max(deepest, now)
		case b == ']' || b == '}':
			now--
		}
	}
	return deepest
}

type findView struct {
	ID    string
	Text  string
	Found []explanation
	// Search leads to a search that goes on.
	Search string
}

type explanation struct {
	monitor.Explanation
	ShownGroup string
	Texts      []reason
}

// findPage looks for a record by its id, or for the records of a message by its id.
func findPage(c *call) error {
	id := c.r.URL.Query().Get("id")
	if id == "" {
		return c.render(200, "find", "Find a message", findView{})
	}
	if item, err := outmill.ParseWorkItemID(id); err == nil {
		r, err := c.store.Get(c.ctx, item)
		if err == nil && r.MessageID != id {
			c.redirect(address("record", cmp.Or(r.Store, c.tenant), "id", id))
			return nil
		}
		if storekit.NoneAnswered(err) && !errors.Is(err, outmill.ErrNotFound) {
			return err
		}
	}
	answer, err := c.why(id)
	if storekit.NoneAnswered(err) {
		return err
	}
	if err != nil {
		c.log.Error("The dashboard could not search some stores", err, nil)
	}
	v := findView{ID: id, Text: answer.Text}
	if !answer.Complete && err == nil {
		v.Search = c.page("records", "message", id)
	}
	for _, e := range answer.Explanations {
		v.Found = append(v.Found, explanation{e, cmp.Or(e.Group, noGroup), reasons(e)})
	}
	return c.render(200, "find", "Find a message", v)
}
