package dashboard

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// recordsAtOnce is how many records a page lists.
const recordsAtOnce = 50

// search is what a page of records looks for, as its form has it.
type search struct {
	Group, Topic, Status, Key, Message, Correlation, Tenant, Contract, Version, Error string
	// Older and Newer limit the age, such as "90m" or "7d".
	Older, Newer string
	After        string
}

// searchNames are the names of the form's fields, in the order of search.pairs.
func (s *search) fields() []struct {
	name  string
	value *string
} {
	return []struct {
		name  string
		value *string
	}{
		{"group", &s.Group}, {"topic", &s.Topic}, {"status", &s.Status}, {"key", &s.Key}, {"message", &s.Message},
		{"correlation", &s.Correlation}, {"tenant", &s.Tenant}, {"contract", &s.Contract}, {"version", &s.Version}, {"error", &s.Error},
		{"older", &s.Older}, {"newer", &s.Newer},
		{"after", &s.After},
	}
}

// readSearch reads the fields by their names.
func readSearch(get func(name string) string) search {
	var s search
	for _, f := range s.fields() {
		*f.value = strings.TrimSpace(get(f.name))
		if f.name == "group" || f.name == "topic" || f.name == "key" || f.name == "contract" || f.name == "error" {
			// These may be anything.
			*f.value = get(f.name)
		}
	}
	return s
}

// Pairs are the names and values of the fields that are set, for an address.
func (s search) pairs() []string {
	var pairs []string
	for _, f := range s.fields() {
		pairs = append(pairs, f.name, *f.value)
	}
	return pairs
}

// facts describe the search to people.
func (s search) facts() []fact {
	names := map[string]string{
		"group": "Group", "topic": "Topic", "status": "Status", "key": "Key", "message": "Message id", "correlation": "Correlation id",
		"tenant": "Tenant id", "contract": "Contract", "version": "Contract version", "error": "Error text contains",
		"older": "Older than", "newer": "Newer than",
	}
	var facts []fact
	for _, f := range s.fields() {
		if *f.value != "" && names[f.name] != "" {
			facts = append(facts, fact{names[f.name], *f.value})
		}
	}
	return facts
}

// query is the search for the store. Errors say which field is wrong.
func (c *call) query(s search) (outmill.ListQuery, error) {
	q := outmill.ListQuery{
		Group: s.Group, Topic: s.Topic, Key: s.Key, MessageID: s.Message, CorrelationID: s.Correlation, TenantID: s.Tenant, ErrorText: s.Error,
		Contract: s.Contract,
	}
	if s.Error != "" && !c.config.ShowErrors {
		// A search would tell the hidden text, letter by letter.
		return q, badRequest("Error texts are hidden in this dashboard, so no search finds them.")
	}
	var err error
	if s.Status != "" {
		if q.Status, err = outmill.ParseStatus(s.Status); err != nil {
			return q, badRequest("The status is not one of pending, leased, processed and dead.")
		}
	}
	if s.Version != "" {
		if q.ContractVersion, err = strconv.Atoi(s.Version); err != nil || q.ContractVersion < 1 {
			return q, badRequest("The version of a contract is a number from 1 on.")
		}
	}
	if s.After != "" {
		if q.After, err = outmill.ParseWorkItemID(s.After); err != nil {
			return q, badRequest("The id after which the list goes on is no id.")
		}
	}
	now := time.Now()
	older, err := parseAge(s.Older)
	if err != nil {
		return q, err
	}
	newer, err := parseAge(s.Newer)
	if err != nil {
		return q, err
	}
	if older > 0 {
		q.CreatedBefore = now.Add(-older)
	}
	if newer > 0 {
		q.CreatedAfter = now.Add(-newer)
	}
	return q, nil
}

// parseAge reads "90m", "36h" or "7d".
func parseAge(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	if days, found := strings.CutSuffix(text, "d"); found {
		// Only digits: half a day too much or too little would delete other records.
		if n, err := strconv.ParseUint(days, 10, 16); err == nil && n > 0 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return d, nil
	}
	return 0, badRequest("An age is not a number with a unit, such as 90m, 36h or 7d.")
}

// recordLine is a record in a list.
type recordLine struct {
	ID, Store, Group, Topic, Key, MessageID string
	Status                                  outmill.Status
	Attempts                                int
	Created                                 time.Time
	Error                                   string
	HasError                                bool
	// Earlier says that the error is from before a requeue or a skip brought the record back.
	Earlier bool
	// Unreadable says what of the record the store cannot read. The text is the store's, and has no values of users.
	Unreadable string
}

func (c *call) recordLine(r *outmill.Record) recordLine {
	l := recordLine{
		ID: r.ID.String(), Store: r.Store, Group: cmp.Or(r.Group, noGroup), Topic: r.Topic, Key: r.Key, MessageID: r.MessageID,
		Status: r.Status, Attempts: r.Attempts, Created: r.CreatedAt, HasError: r.LastError != "",
		Earlier: storekit.ErrorIsEarlier(r), Unreadable: cut(r.Unreadable, maxError),
	}
	if c.config.ShowErrors {
		l.Error = cut(r.LastError, 200)
	}
	return l
}

type recordsView struct {
	Search  search
	Dead    bool
	Records []recordLine
	// Examined is how many records the store looked at, and Next where to go on; "" if it is done.
	Examined int
	Next     string
	Many     bool
	Partly   bool
	// Actions are the changes that fit the search.
	Requeue, Delete string
	Statuses        []outmill.Status
	// MoreSet says that one of the filters that are folded away is set.
	MoreSet bool
}

func recordsPage(c *call) error {
	s := readSearch(c.r.URL.Query().Get)
	query, err := c.query(s)
	if err != nil {
		return err
	}
	query.Limit = recordsAtOnce
	page, partly, err := c.find(query)
	if err != nil {
		return err
	}
	v := recordsView{
		Search: s, Dead: query.Status == outmill.StatusDead, Examined: page.Examined, Many: c.isMany() && c.tenant == "", Partly: partly,
		Statuses: []outmill.Status{outmill.StatusPending, outmill.StatusLeased, outmill.StatusProcessed, outmill.StatusDead},
	}
	v.MoreSet = s.Key+s.Message+s.Correlation+s.Tenant+s.Contract+s.Version+s.Older+s.Newer != ""
	for _, r := range page.Records {
		v.Records = append(v.Records, c.recordLine(r))
	}
	if !page.Done {
		next := s
		next.After = page.Next.String()
		v.Next = c.page("records", next.pairs()...)
	}
	s.After = ""
	if v.Dead {
		v.Requeue = c.page("requeue", s.pairs()...)
	}
	if s.Status != "" {
		v.Delete = c.page("delete", s.pairs()...)
	}
	title := "Search"
	if v.Dead {
		title = "Dead letters"
	}
	return c.render(200, "records", title, v)
}

// find asks the role of an operator, which looks at a bounded number of records. partly says that
// some stores of many did not answer.
func (c *call) find(query outmill.ListQuery) (page roles.Page, partly bool, err error) {
	operator, ok := outmill.As[roles.Repairs](c.store)
	if !ok {
		return page, false, lacks("finds no records by a filter (roles.Repairs)")
	}
	page, err = operator.Find(c.ctx, query)
	if storekit.SomeAnswered(err) {
		c.log.Error("The dashboard could not search some stores", err, nil)
		return page, true, nil
	}
	return page, false, err
}

// lacks says that the store has not got a role.
func lacks(what string) error { return &problem{200, "This store " + what + "."} }
