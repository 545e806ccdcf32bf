package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// letter is a dead record that no other has parked.
type letter struct {
	recordLine
	// Waiting is how many records are parked behind it; "" is none.
	Waiting string
}

type deadView struct {
	Search   search
	Letters  []letter
	Examined int
	Next     string
	Many     bool
	Partly   bool
	Requeue  string
}

// deadPage lists the heads of parked keys, and dead records that nobody waits for. For a store
// without that role it is a search.
func deadPage(c *call) error {
	s := readSearch(c.r.URL.Query().Get)
	s.Status = string(outmill.StatusDead)
	role, ok := outmill.As[roles.Repairs](c.store)
	if !ok {
		c.redirect(c.page("records", s.pairs()...))
		return nil
	}
	query, err := c.query(s)
	if err != nil {
		return err
	}
	query.Limit = recordsAtOnce
	page, err := role.DeadLetters(c.ctx, query)
	if isLack(err) {
		c.redirect(c.page("records", s.pairs()...))
		return nil
	}
	if storekit.NoneAnswered(err) {
		return err
	}
	v := deadView{Search: s, Examined: page.Examined, Many: c.isMany() && c.tenant == "", Partly: err != nil}
	if err != nil {
		c.log.Error("The dashboard could not list the dead letters of some stores", err, nil)
	}
	for _, l := range page.Letters {
		one := letter{recordLine: c.recordLine(l.Record)}
		if l.Waiting > 0 {
			one.Waiting = upTo(l.Waiting, roles.MaxWaiting)
		}
		v.Letters = append(v.Letters, one)
	}
	if !page.Done {
		next := s
		next.After = page.Next.String()
		v.Next = c.page("dead", next.pairs()...)
	}
	s.After = ""
	v.Requeue = c.page("requeue", s.pairs()...)
	return c.render(http.StatusOK, "dead", "Dead letters", v)
}

// bench is the role of the store, or the error that it lacks it.
func (c *call) bench() (roles.Repairs, error) {
	role, ok := outmill.As[roles.Repairs](c.store)
	if !ok {
		return nil, lacks("cannot edit or skip records (roles.Repairs)")
	}
	return role, nil
}

// maxEdit is the size of the largest payload that is edited in a browser.
const maxEdit = 256 << 10

type editView struct {
	ID, Seen string
	Topic    string
	Payload  string
	// Unseen warns of characters in the payload; "" is none.
	Unseen string
	// NoPayload is why the payload cannot be edited here.
	NoPayload string
	Metadata  string
	Fields    []fact
	Back      string
}

// dead returns the dead record of the request, for a page that changes it.
func (c *call) dead(text string) (*outmill.Record, error) {
	id, err := c.id(text)
	if err != nil {
		return nil, err
	}
	r, err := c.store.Get(c.ctx, id)
	if err == nil && r.Status != outmill.StatusDead {
		err = roles.ErrNotDead
	}
	return r, err
}

func editPage(c *call) error {
	if _, err := c.bench(); err != nil {
		return err
	}
	if !c.config.ShowPayloads {
		return &problem{http.StatusForbidden, "Payloads are hidden in this dashboard, so nobody edits them here."}
	}
	r, err := c.dead(c.r.URL.Query().Get("id"))
	if err != nil {
		return err
	}
	names, err := json.MarshalIndent(r.Metadata, "", "  ")
	if err != nil {
		return err
	}
	if len(r.Metadata) == 0 {
		names = []byte("{}")
	}
	id := r.ID.String()
	v := editView{
		ID: id, Seen: storekit.FingerprintOf(r), Topic: r.Topic, Metadata: storekit.VisibleJSON(string(names)),
		Fields: c.fields("id", id), Back: c.page("record", "id", id),
	}
	if v.NoPayload = notEditable(r.Payload); v.NoPayload == "" {
		v.Payload = string(r.Payload)
		v.Unseen = unseenIn(v.Payload)
	}
	return c.render(http.StatusOK, "edit", "Edit a dead record", v)
}

// unseenIn names the characters of a text that its reader cannot see, or that change how the text
// around them looks; "" if there are none.
func unseenIn(text string) string {
	var found []string
	for _, r := range text {
		name := fmt.Sprintf("U+%04X", r)
		if r != '\n' && r != '\t' && storekit.Unseen(r) && !slices.Contains(found, name) {
			if found = append(found, name); len(found) == maxUnseen {
				break
			}
		}
	}
	if found == nil {
		return ""
	}
	return "The payload has characters that cannot be seen, or that change how the text around them looks: " + strings.Join(found, ", ") + "."
}

// maxUnseen is the most characters that unseenIn names.
const maxUnseen = 8

// notEditable says why a text field would change more of the payload than its user does.
func notEditable(payload []byte) string {
	switch {
	case len(payload) > maxEdit:
		return "The payload is too large to be edited here."
	case !utf8.Valid(payload):
		return "The payload is no text, so it cannot be edited here."
	case bytes.ContainsFunc(payload, func(r rune) bool { return r != '\n' && r != '\t' && unicode.IsControl(r) }):
		return "The payload has control characters that a browser would change, so it cannot be edited here."
	}
	return ""
}

func edit(c *call) error {
	role, err := c.bench()
	if err != nil {
		return err
	}
	if !c.config.ShowPayloads {
		return &problem{http.StatusForbidden, "Payloads are hidden in this dashboard, so nobody edits them here."}
	}
	r, err := c.dead(c.r.PostForm.Get("id"))
	if err != nil {
		return err
	}
	change, err := readEdit(c.r.PostForm, r)
	if err != nil {
		return err
	}
	back := c.page("record", "id", r.ID.String())
	if change.Payload == nil && change.Metadata == nil {
		return c.done("Nothing was changed: the form has what the record has.", back)
	}
	if _, err := role.Edit(c.ctx, r.ID, change); err != nil {
		return err
	}
	c.audit("edited a record", "record", r.ID.String())
	return c.done("The record is changed. It stays dead until it is requeued.", back)
}

// readEdit reads the fields that differ from the record.
func readEdit(form map[string][]string, r *outmill.Record) (roles.Edit, error) {
	first := func(name string) (string, bool) {
		if values := form[name]; len(values) > 0 {
			return values[0], true
		}
		return "", false
	}
	var change roles.Edit
	change.Seen, _ = first("seen")
	// Browsers end the lines of a text field with CR and LF.
	if text, there := first("payload"); there && notEditable(r.Payload) == "" {
		if text = strings.ReplaceAll(text, "\r\n", "\n"); text != string(r.Payload) {
			change.Payload = []byte(text)
		}
	}
	if text, there := first("metadata"); there {
		names := map[string]string{}
		if err := json.Unmarshal([]byte(text), &names); err != nil || names == nil {
			return change, badRequest("The metadata are no JSON object with texts, such as {\"name\": \"order.placed\"}.")
		}
		if !sameMetadata(names, r.Metadata) {
			change.Metadata = names
		}
	}
	return change, nil
}

func sameMetadata(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for name, value := range a {
		if other, there := b[name]; !there || other != value {
			return false
		}
	}
	return true
}

func confirmSkip(c *call) error {
	if _, err := c.bench(); err != nil {
		return err
	}
	r, err := c.dead(c.r.URL.Query().Get("id"))
	if err != nil {
		return err
	}
	id := r.ID.String()
	return c.render(http.StatusOK, "confirm", "Skip a dead record", confirmation{
		Text: "The record is deleted without being handled. The records that are parked behind it become due, in their order. " +
			"This cannot be undone.",
		Facts: []fact{{"Record", id}, {"Topic", r.Topic}, {"Key", r.Key}}, Action: "skip", Button: "Skip", Danger: true,
		Fields: c.fields("id", id), Back: c.page("record", "id", id),
	})
}

// skip works for some seconds, and offers to go on.
func skip(c *call) error {
	role, err := c.bench()
	if err != nil {
		return err
	}
	text := c.r.PostForm.Get("id")
	id, err := c.id(text)
	if err != nil {
		return err
	}
	released, done := c.before(), false
	for end := time.Now().Add(min(changeTime, c.config.Timeout/2)); !done && time.Now().Before(end); {
		result, err := role.Skip(c.ctx, id)
		if released, done = released+result.Released, result.Done; err != nil {
			return err
		}
	}
	c.audit("skipped a record", "record", text, "released", strconv.Itoa(released))
	out := outcome{Text: records(released) + " became due behind the record.", Back: c.page("dead")}
	if done {
		out.Text = "The record was skipped. " + out.Text
		return c.render(http.StatusOK, "done", "Done", out)
	}
	out.Text += " More are left."
	out.Again = &confirmation{Action: "skip", Button: "Go on", Danger: true, Fields: c.fields("id", text, "before", strconv.Itoa(released))}
	return c.render(http.StatusOK, "done", "Not done yet", out)
}
