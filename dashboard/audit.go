package dashboard

import (
	"net/http"
	"slices"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// auditAtOnce is how many entries a page looks at for those of one record, which no index finds.
const auditAtOnce = 200

// entry is a line of the audit.
type entry struct {
	roles.AuditEntry
	Filter []fact
	Change string
}

type auditView struct {
	Entries []entry
	// Record is the record whose entries these are, and Examined how many entries were looked at;
	// "" is those of all records.
	Record   string
	Examined int
	Next     string
	Many     bool
	Partly   bool
}

// auditPage lists the changes by operators, or those of one record.
func auditPage(c *call) error {
	role, ok := outmill.As[roles.Repairs](c.store)
	if !ok {
		return lacks("keeps no audit (roles.Repairs)")
	}
	var of outmill.WorkItemID
	query := roles.AuditQuery{After: c.r.URL.Query().Get("after"), Limit: recordsAtOnce}
	record := c.r.URL.Query().Get("record")
	if record != "" {
		var err error
		if of, err = c.id(record); err != nil {
			return err
		}
		query.Limit = auditAtOnce
	}
	page, err := role.Audited(c.ctx, query)
	if isLack(err) {
		return lacks("keeps no audit (roles.Repairs)")
	}
	if storekit.NoneAnswered(err) {
		return err
	}
	v := auditView{Record: record, Examined: len(page.Entries), Many: c.isMany() && c.tenant == "", Partly: err != nil}
	for _, e := range page.Entries {
		if record == "" || slices.Contains(e.IDs, of) {
			v.Entries = append(v.Entries, c.entry(e))
		}
	}
	if !page.Done {
		v.Next = c.page("audit", "record", record, "after", page.Next)
	}
	return c.render(http.StatusOK, "audit", "Audit", v)
}

func (c *call) entry(e roles.AuditEntry) entry {
	line := entry{AuditEntry: e}
	all, _ := metadata(e.Filter)
	for _, f := range all {
		if f.Name == "error_text" && !c.config.ShowErrors {
			f.Value = "hidden"
		}
		line.Filter = append(line.Filter, f)
	}
	if e.Before.Fingerprint != "" && e.After.Fingerprint != "" {
		line.Change = number(e.Before.Size) + " to " + number(e.After.Size) + " bytes"
		if c.config.ShowPayloads && len(e.Metadata) > 0 {
			line.Change += "; metadata " + strings.Join(e.Metadata, ", ")
		}
	}
	return line
}

// pastOf are the names of the actions in the history of a record.
var pastOf = map[roles.AuditAction]string{
	roles.AuditRequeue: "Requeued", roles.AuditDelete: "Delete", roles.AuditEdit: "Edited", roles.AuditSkip: "Skip",
	roles.AuditEditRequeue: "Edited and requeued",
}

// addChanges adds to the history of a record what operators did to it, by the newest entries of
// the audit. Entries that are older than the record are not of it.
func (c *call) addChanges(v *recordView, r *outmill.Record) error {
	role, ok := outmill.As[roles.Repairs](c.store)
	if !ok {
		return nil
	}
	page, err := role.Audited(c.ctx, roles.AuditQuery{Limit: auditAtOnce})
	if isLack(err) {
		return nil
	}
	if err != nil {
		return err
	}
	v.Audited = true
	older := page.Done
	for _, e := range page.Entries {
		older = older || e.At.Before(r.CreatedAt)
		if slices.Contains(e.IDs, r.ID) {
			v.History = append(v.History, moment{Name: pastOf[e.Action], At: e.At, By: e.Actor, Note: c.entry(e).Change})
		}
	}
	inOrder(v.History)
	if !older {
		v.MoreAudit = c.page("audit", "record", r.ID.String(), "after", page.Next)
	}
	return nil
}
