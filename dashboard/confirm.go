package dashboard

import (
	"github.com/ThreeDotsLabs/watermill"
)

// confirmation is a page that asks before a change. Its form has the button that does it, so it
// works without scripts and by keyboard.
type confirmation struct {
	Text   string
	Facts  []fact
	Action string
	Button string
	Danger bool
	// Fields are hidden fields of the form.
	Fields []fact
	// Inputs are the fields that people fill.
	Inputs []input
	Back   string
}

type input struct {
	Name, Label, Value, Hint string
	Max                      int
}

// outcome is the page after a change.
type outcome struct {
	Text string
	Back string
	// Again is a confirmation that goes on, for a change in several steps.
	Again *confirmation
}

// fields are the hidden fields of a form, with the chosen tenant.
func (c *call) fields(pairs ...string) []fact {
	var fields []fact
	if c.tenant != "" {
		fields = append(fields, fact{"store", c.tenant})
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fields = append(fields, fact{pairs[i], pairs[i+1]})
		}
	}
	return fields
}

// done shows what a change did.
func (c *call) done(text, back string) error {
	return c.render(200, "done", "Done", outcome{Text: text, Back: back})
}

// audit logs a change, with the user who made it.
func (c *call) audit(what string, pairs ...string) {
	fields := watermill.LogFields{"user": clean(c.user), "change": what}
	if c.tenant != "" {
		fields["tenant"] = c.tenant
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		fields[pairs[i]] = clean(pairs[i+1])
	}
	c.log.Info("A user of the dashboard changed the store", fields)
}

func records(n int) string {
	if n == 1 {
		return "1 record"
	}
	return number(n) + " records"
}
