package engine

import (
	"context"
	"fmt"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// lettersAtOnce is how many dead records are compared with the keys at once.
const lettersAtOnce = 1000

// DeadLetters returns a page of dead letters. See roles.Repairs.
func (e *Engine) DeadLetters(ctx context.Context, query outmill.ListQuery) (roles.DeadPage, error) {
	const operation = "list dead letters"
	query, err := storekit.CheckDeadLetters(query)
	if err != nil {
		return roles.DeadPage{}, e.explain(ctx, operation, err)
	}
	page := roles.DeadPage{Next: query.After}
	atOnce := lettersAtOnce
	if query.Content {
		atOnce = query.Limit
	}
	for limit := query.Limit; ; {
		query.Limit = min(atOnce, roles.MaxExamined-page.Examined)
		query.After = page.Next
		found, err := e.search(ctx, operation, query)
		if err != nil {
			return roles.DeadPage{Next: query.After}, err
		}
		letters, err := e.letters(ctx, operation, wantOf(query), found.ids)
		if err != nil {
			return roles.DeadPage{Next: query.After}, err
		}
		for _, letter := range letters {
			if len(page.Letters) == limit {
				// The rest is for the next page.
				page.Next = page.Letters[limit-1].Record.ID
				return page, nil
			}
			// What has changed since the search may no longer match.
			if storekit.Matches(query, letter.Record) {
				page.Letters = append(page.Letters, letter)
			}
		}
		page.Examined, page.Next, page.Done = page.Examined+found.examined, found.next, found.done
		if page.Done || page.Examined >= roles.MaxExamined || len(page.Letters) == limit {
			return page, nil
		}
	}
}

// Edit changes a dead record. See roles.Repairs.
func (e *Engine) Edit(ctx context.Context, id outmill.WorkItemID, edit roles.Edit) (*outmill.Record, error) {
	const operation = "edit"
	if err := storekit.CheckEdit(edit, e.config.MaxPayload); err != nil {
		return nil, e.explain(ctx, operation, err)
	}
	var edited *outmill.Record
	err := e.editDead(ctx, operation, id, func(before *outmill.Record) (*outmill.Record, roles.AuditEntry, error) {
		after, same, err := storekit.ApplyEdit(edit, before)
		if edited = after; err != nil || same {
			return nil, roles.AuditEntry{}, err
		}
		return after, storekit.NewEditEntry(ctx, before, after), nil
	})
	if err != nil {
		return nil, err
	}
	return edited, nil
}

// Skip removes a dead record, and brings back what waits behind it. See roles.Repairs.
func (e *Engine) Skip(ctx context.Context, id outmill.WorkItemID) (roles.Skipped, error) {
	const operation = "skip"
	ctx = storekit.OneCommand(ctx)
	var total roles.Skipped
	for nth := 0; !total.Done && total.Released < roles.MaxReleased; nth++ {
		step, err := e.skipDead(ctx, operation, id, nth, func(r *outmill.Record) (roles.AuditEntry, error) {
			if r.Status != outmill.StatusDead {
				return roles.AuditEntry{}, fmt.Errorf("%w; it is %s", roles.ErrNotDead, r.Status)
			}
			return storekit.NewSkipEntry(ctx, r), nil
		})
		if total.Released += step.Released; err != nil {
			return total, err
		}
		total.Done = step.Done
	}
	return total, nil
}

// Audited returns a page of the audit. See roles.Repairs.
func (e *Engine) Audited(ctx context.Context, query roles.AuditQuery) (roles.AuditPage, error) {
	const operation = "read the audit"
	before, limit, err := storekit.CheckAudited(query)
	if err != nil {
		return roles.AuditPage{}, e.explain(ctx, operation, err)
	}
	entries, err := e.auditEntries(ctx, operation, before, limit)
	if err != nil {
		return roles.AuditPage{Next: query.After}, err
	}
	return storekit.AuditPageOf(query, limit, entries), nil
}
