package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/mutants"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func TestRun_BrokenWorkbenches(t *testing.T) {
	edits := func(change func(context.Context, mutants.File, outmill.WorkItemID, *roles.Edit)) func(mutants.File) outmill.Store {
		return func(f mutants.File) outmill.Store { return editsOtherwise{f, change} }
	}
	exec := func(query string) func(mutants.File) outmill.Store {
		return func(f mutants.File) outmill.Store { return skipsOtherwise{f, query} }
	}
	letters := func(change func(outmill.ListQuery, *roles.DeadPage)) func(mutants.File) outmill.Store {
		return func(f mutants.File) outmill.Store { return listsLetters{f, change} }
	}
	entries := func(change func(roles.AuditQuery, *roles.AuditPage)) func(mutants.File) outmill.Store {
		return func(f mutants.File) outmill.Store { return auditsOtherwise{f, change} }
	}
	// seesNow edits whatever the record is now.
	seesNow := func(ctx context.Context, f mutants.File, id outmill.WorkItemID, e *roles.Edit) {
		if r, err := f.Get(ctx, id); err == nil {
			e.Seen = storekit.FingerprintOf(r)
		}
	}
	mutants.RequireNoticed(t, sections(), suite.Modes()[0], []mutant{
		{"changes the payload with the metadata", "edit", "Edit replaces the payload or the metadata of a dead record, and nothing else",
			edits(func(_ context.Context, _ mutants.File, _ outmill.WorkItemID, e *roles.Edit) {
				if e.Payload == nil {
					e.Payload = []byte("other")
				}
			})},
		{"keeps removed metadata", "edit", "Edit replaces the payload or the metadata of a dead record, and nothing else",
			edits(func(ctx context.Context, f mutants.File, id outmill.WorkItemID, e *roles.Edit) {
				if r, err := f.Get(ctx, id); err == nil && e.Metadata != nil {
					for name, value := range r.Metadata {
						if _, has := e.Metadata[name]; !has {
							e.Metadata[name] = value
						}
					}
				}
			})},
		{"returns the record before the edit", "edit", "Edit returns the record as Get does",
			func(f mutants.File) outmill.Store { return editsSilently{f} }},
		{"edits in memory only", "edit", "an edited record is delivered as edited after a Requeue",
			func(f mutants.File) outmill.Store { return editsNothing{f} }},
		{"keeps the old size", "edit", "a claim counts the size of an edited record",
			func(f mutants.File) outmill.Store { return editsUnsized{f} }},
		{"frees the key of what it edits", "edit", "Edit of a parked record leaves its key parked",
			func(f mutants.File) outmill.Store { return editsAndRequeues{f} }},
		{"edits what has changed", "edit", "Edit refuses a record that has changed since the caller saw it", edits(seesNow)},
		{"lets every edit win", "edit", "of two edits at the same time one is made, and the other is refused",
			func(f mutants.File) outmill.Store { return editsUntilItWins{f} }},
		{"refuses an edit that is repeated", "edit", "an Edit that is repeated changes nothing and is no error",
			func(f mutants.File) outmill.Store { return editsOnce{f} }},
		{"edits what is alive", "edit", "Edit refuses records that are not dead, and unknown ones",
			func(f mutants.File) outmill.Store { return editsAlive{f} }},
		{"drops metadata that it should refuse", "edit",
			"Edit refuses metadata that would change a field of the record",
			edits(func(_ context.Context, _ mutants.File, _ outmill.WorkItemID, e *roles.Edit) {
				for _, name := range []string{outmill.MetadataKey, outmill.MetadataTenantID} {
					delete(e.Metadata, name)
				}
			})},
		{"takes any edit", "edit", "Edit refuses what Append refuses, and changes nothing",
			edits(func(_ context.Context, _ mutants.File, _ outmill.WorkItemID, e *roles.Edit) {
				if e.Metadata["a"] == "\x00" {
					e.Metadata["a"] = "?"
				}
			})},
		{"empties a nil payload with an edit of the metadata", "edit", "Edit tells a nil payload from an empty one",
			edits(func(ctx context.Context, f mutants.File, id outmill.WorkItemID, e *roles.Edit) {
				if r, err := f.Get(ctx, id); err == nil && e.Payload == nil && r.Payload == nil {
					e.Payload = []byte{}
				}
			})},
		{"cuts a payload at a NUL", "edit", "Edit keeps texts as they are",
			edits(func(_ context.Context, _ mutants.File, _ outmill.WorkItemID, e *roles.Edit) {
				if i := slices.Index(e.Payload, 0); i >= 0 {
					e.Payload = e.Payload[:i]
				}
			})},
		{"edits after the end", "edit", "Edit on a closed store, or in a context that has ended, changes nothing",
			func(f mutants.File) outmill.Store { return editsLate{f} }},

		{"removes the head and leaves the others", "skip", "Skip of the head of a parked key removes it and brings the others back, in order",
			func(f mutants.File) outmill.Store { return skipsAlone{f} }},
		{"requeues the head instead", "skip", "Skip of the head of a parked key removes it and brings the others back, in order",
			func(f mutants.File) outmill.Store { return skipsByRequeue{f} }},
		{"leaves what was parked later", "skip", "Skip brings back what was appended to the parked key later",
			exec(`UPDATE outmill_records SET parked = 0 WHERE message_id > 'm2'`)},
		{"deletes what it should release", "skip", "a key goes on after its head was skipped",
			exec(`DELETE FROM outmill_records WHERE parked > 0 AND last_error LIKE 'parked%'`)},
		{"releases the key with any of its records", "skip",
			"Skip of a parked record behind the head removes it alone, and its key stays parked",
			exec(`UPDATE outmill_records SET parked = 0 WHERE last_error = 'poison'`)},
		{"releases with a record that parks nothing", "skip", "Skip of a dead record before the head leaves the key parked",
			exec(`UPDATE outmill_records SET parked = 1 WHERE stage = 6`)},
		{"releases the key of all groups", "skip", "Skip leaves other keys, topics and groups parked",
			exec(`UPDATE outmill_records SET grp = 'readers', topic = 'orders', key = 'k' WHERE parked > 0`)},
		{"skips what is alive", "skip", "Skip refuses records that are not dead, and unknown ones",
			exec(`UPDATE outmill_records SET stage = 6, wake_at = 0`)},
		{"keeps the attempts of what it releases", "skip",
			"Skip sets the attempts and expiries of released records to 0, as Requeue does",
			func(f mutants.File) outmill.Store { return skipsWithAttempts{f} }},
		{"releases backwards", "skip", "Skip releases a key of many records, in order",
			func(f mutants.File) outmill.Store { return backwards{f} }},
		{"skips after the end", "skip", "Skip on a closed store, or in a context that has ended, changes nothing",
			func(f mutants.File) outmill.Store { return skipsLate{f} }},
		{"removes the record alone without its others", "skip", "a released record that fails parks the rest again",
			func(f mutants.File) outmill.Store { return skipsAlone{f} }},

		{"counts the head too", "dead letters", "DeadLetters has the head of each parked key with its error and what waits behind it",
			letters(func(_ outmill.ListQuery, p *roles.DeadPage) {
				for i := range p.Letters {
					p.Letters[i].Waiting++
				}
			})},
		{"has parked keys only", "dead letters", "DeadLetters has dead records that have parked nothing, and nobody waits for them",
			letters(func(_ outmill.ListQuery, p *roles.DeadPage) {
				p.Letters = slices.DeleteFunc(p.Letters, func(l roles.DeadLetter) bool { return l.Waiting == 0 })
			})},
		{"has all dead records", "dead letters", "DeadLetters has no record that is not dead, nor one that another has parked",
			func(f mutants.File) outmill.Store { return listsAllDead{f} }},
		{"knows the head by its error", "dead letters", "the next parked record is the head when the head is gone",
			letters(func(_ outmill.ListQuery, p *roles.DeadPage) {
				p.Letters = slices.DeleteFunc(p.Letters, func(l roles.DeadLetter) bool { return l.Record.LastError == storekit.ParkedError })
			})},
		{"counts up to one", "dead letters", "records that are appended to a parked key wait behind its head once a claim has met them",
			letters(func(_ outmill.ListQuery, p *roles.DeadPage) {
				for i := range p.Letters {
					p.Letters[i].Waiting = min(p.Letters[i].Waiting, 1)
				}
			})},
		{"ignores the filter", "dead letters", "DeadLetters returns the heads that match every field of the query",
			func(f mutants.File) outmill.Store {
				return asksLetters{f, func(q *outmill.ListQuery) { q.Key, q.Topic = "", "" }}
			}},
		{"has a head twice", "dead letters", "pages of DeadLetters have each head once",
			letters(func(q outmill.ListQuery, p *roles.DeadPage) {
				if q.After.IsZero() && len(p.Letters) > 1 {
					p.Next = p.Letters[len(p.Letters)-2].Record.ID
				}
				p.Done = p.Done && !q.After.IsZero()
			})},
		{"looks at all dead records", "dead letters",
			"a page of DeadLetters looks at 10,000 records at most, and the next one goes on behind it",
			func(f mutants.File) outmill.Store { return looksAtAllLetters{f} }},
		{"takes any status", "dead letters", "queries of DeadLetters that no dead record can match are refused",
			func(f mutants.File) outmill.Store {
				return asksLetters{f, func(q *outmill.ListQuery) { q.Status = "" }}
			}},
		{"lists after the end", "dead letters", "DeadLetters on a closed store, or in a context that has ended, is an error",
			func(f mutants.File) outmill.Store { return listsLate{f} }},

		{"leaves an entry of edits only", "audit", "Requeue, Delete, Edit and Skip leave an entry each: who, when, what, and how many",
			entries(func(_ roles.AuditQuery, p *roles.AuditPage) {
				p.Entries = slices.DeleteFunc(p.Entries, func(e roles.AuditEntry) bool { return e.Action != roles.AuditEdit })
			})},
		{"counts calls", "audit", "Requeue, Delete, Edit and Skip leave an entry each: who, when, what, and how many",
			entries(func(_ roles.AuditQuery, p *roles.AuditPage) {
				for i := range p.Entries {
					p.Entries[i].Count = 1
				}
			})},
		{"forgets the filter", "audit", "a call by filter leaves entries with its filter, whose counts add up to what it changed",
			entries(func(_ roles.AuditQuery, p *roles.AuditPage) {
				for i := range p.Entries {
					p.Entries[i].Filter = nil
				}
			})},
		{"notes every call", "audit", "a call that changes nothing leaves no entry", func(f mutants.File) outmill.Store { return auditsAll{f} }},
		{"notes the work of readers", "audit", "the work of readers leaves no entry",
			func(f mutants.File) outmill.Store { return auditsAcks{f} }},
		{"has no fingerprints", "audit", "an entry of Edit has fingerprints, sizes and names, and neither payload nor values",
			entries(func(_ roles.AuditQuery, p *roles.AuditPage) {
				for i := range p.Entries {
					p.Entries[i].Before.Fingerprint = ""
				}
			})},
		{"invents an actor", "audit", "a caller without a name leaves an entry without one",
			entries(func(_ roles.AuditQuery, p *roles.AuditPage) {
				for i := range p.Entries {
					p.Entries[i].Actor = "root"
				}
			})},
		{"trims names", "audit", "an entry takes names as they are",
			entries(func(_ roles.AuditQuery, p *roles.AuditPage) {
				for i := range p.Entries {
					p.Entries[i].Actor = storekit.ActorOf(storekit.WithActor(context.Background(), p.Entries[i].Actor[:5]))
				}
			})},
		{"returns the oldest entries first", "audit", "Audited returns the newest entries first, in pages that have each entry once",
			entries(func(_ roles.AuditQuery, p *roles.AuditPage) { slices.Reverse(p.Entries) })},
		{"begins at the newest entry with each page", "audit", "Audited returns the newest entries first, in pages that have each entry once",
			entries(func(_ roles.AuditQuery, p *roles.AuditPage) { p.Next = "" })},
		{"takes any place", "audit", "Audited refuses a limit below 0 and a place that is not its own",
			func(f mutants.File) outmill.Store { return auditsFromAnywhere{f} }},
		{"audits in memory", "audit", "a second store on the same database has the same entries",
			func(f mutants.File) outmill.Store { return &auditsHere{File: f} }},
		{"deletes new entries", "audit", "DeleteOldAudit deletes the entries whose retention has passed, the oldest first, up to its limit",
			func(f mutants.File) outmill.Store { return deletesAudit{f} }},
		{"reads its audit after the end", "audit", "Audited and DeleteOldAudit on a closed store, or in a context that has ended, do nothing",
			func(f mutants.File) outmill.Store { return auditsLate{f} }},
		{"leaves an entry for each call of a command", "audit",
			"the calls of one command leave one entry, which each of them brings up to date",
			func(f mutants.File) outmill.Store { return auditsCalls{f} }},
		{"leaves the count of the first step", "audit", "a call in several transactions leaves one entry",
			entries(func(_ roles.AuditQuery, p *roles.AuditPage) {
				for i := range p.Entries {
					p.Entries[i].Count = min(p.Entries[i].Count, 100)
				}
			})},
		{"counts an edit and a requeue", "audit", "an edit and a requeue by one command leave one entry with the count of the requeue",
			entries(func(_ roles.AuditQuery, p *roles.AuditPage) {
				for i := range p.Entries {
					if p.Entries[i].Action == roles.AuditEditRequeue {
						p.Entries[i].Count++
					}
				}
			})},
		{"has one command for all", "audit", "a command leaves an entry for each action, and another command leaves its own",
			func(f mutants.File) outmill.Store { return &auditsOnce{File: f} }},
	})
}

// editsOtherwise changes each edit.
type editsOtherwise struct {
	mutants.File
	change func(ctx context.Context, f mutants.File, id outmill.WorkItemID, e *roles.Edit)
}

func (m editsOtherwise) Edit(ctx context.Context, id outmill.WorkItemID, edit roles.Edit) (*outmill.Record, error) {
	m.change(ctx, m.File, id, &edit)
	return m.File.Edit(ctx, id, edit)
}

type editsSilently struct{ mutants.File }

func (m editsSilently) Edit(ctx context.Context, id outmill.WorkItemID, edit roles.Edit) (*outmill.Record, error) {
	before, err := m.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	_, err = m.File.Edit(ctx, id, edit)
	return before, err
}

type editsNothing struct{ mutants.File }

func (m editsNothing) Edit(ctx context.Context, id outmill.WorkItemID, edit roles.Edit) (*outmill.Record, error) {
	r, err := m.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	r.Payload, r.Metadata = edit.Payload, edit.Metadata
	return r, nil
}

// run changes the tables.
func run(ctx context.Context, f mutants.File, query string, args ...any) error {
	_, err := f.DB().ExecContext(ctx, query, args...)
	return err
}

type editsUnsized struct{ mutants.File }

func (m editsUnsized) Edit(ctx context.Context, id outmill.WorkItemID, edit roles.Edit) (*outmill.Record, error) {
	after, err := m.File.Edit(ctx, id, edit)
	if err == nil {
		err = run(ctx, m.File, `UPDATE outmill_records SET size = 10`)
	}
	return after, err
}

type editsAndRequeues struct{ mutants.File }

func (m editsAndRequeues) Edit(ctx context.Context, id outmill.WorkItemID, edit roles.Edit) (*outmill.Record, error) {
	after, err := m.File.Edit(ctx, id, edit)
	if err == nil {
		_, err = m.Requeue(ctx, id)
	}
	return after, err
}

type editsOnce struct{ mutants.File }

func (m editsOnce) Edit(ctx context.Context, id outmill.WorkItemID, edit roles.Edit) (*outmill.Record, error) {
	if r, err := m.Get(ctx, id); err == nil && storekit.FingerprintOf(r) != edit.Seen {
		return nil, roles.ErrRecordChanged
	}
	return m.File.Edit(ctx, id, edit)
}

// editsUntilItWins repeats an edit that another one overtook, so every edit is made, whatever
// their order.
type editsUntilItWins struct{ mutants.File }

func (m editsUntilItWins) Edit(ctx context.Context, id outmill.WorkItemID, edit roles.Edit) (*outmill.Record, error) {
	for {
		if r, err := m.Get(ctx, id); err == nil {
			edit.Seen = storekit.FingerprintOf(r)
		}
		r, err := m.File.Edit(ctx, id, edit)
		if !errors.Is(err, roles.ErrRecordChanged) {
			return r, err
		}
	}
}

type editsAlive struct{ mutants.File }

func (m editsAlive) Edit(ctx context.Context, id outmill.WorkItemID, edit roles.Edit) (*outmill.Record, error) {
	r, err := m.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return r, run(ctx, m.File, `UPDATE outmill_records SET payload = ?`, edit.Payload)
}

type editsLate struct{ mutants.File }

func (m editsLate) Edit(ctx context.Context, id outmill.WorkItemID, edit roles.Edit) (*outmill.Record, error) {
	return m.File.Edit(context.WithoutCancel(ctx), id, edit)
}

// skipsOtherwise changes the tables before it skips.
type skipsOtherwise struct {
	mutants.File
	query string
}

func (m skipsOtherwise) Skip(ctx context.Context, id outmill.WorkItemID) (roles.Skipped, error) {
	if err := run(ctx, m.File, m.query); err != nil {
		return roles.Skipped{}, err
	}
	return m.File.Skip(ctx, id)
}

type skipsAlone struct{ mutants.File }

func (m skipsAlone) Skip(ctx context.Context, id outmill.WorkItemID) (roles.Skipped, error) {
	_, err := m.Delete(ctx, id)
	return roles.Skipped{Done: true, Released: 2}, err
}

type skipsByRequeue struct{ mutants.File }

func (m skipsByRequeue) Skip(ctx context.Context, id outmill.WorkItemID) (roles.Skipped, error) {
	n, err := m.Requeue(ctx, id)
	return roles.Skipped{Done: true, Released: n - 1}, err
}

type skipsWithAttempts struct{ mutants.File }

func (m skipsWithAttempts) Skip(ctx context.Context, id outmill.WorkItemID) (roles.Skipped, error) {
	skipped, err := m.File.Skip(ctx, id)
	if err == nil {
		err = run(ctx, m.File, `UPDATE outmill_records SET attempts = 1`)
	}
	return skipped, err
}

type skipsLate struct{ mutants.File }

func (m skipsLate) Skip(ctx context.Context, id outmill.WorkItemID) (roles.Skipped, error) {
	return m.File.Skip(context.WithoutCancel(ctx), id)
}

// listsLetters changes each page of dead letters.
type listsLetters struct {
	mutants.File
	change func(outmill.ListQuery, *roles.DeadPage)
}

func (m listsLetters) DeadLetters(ctx context.Context, query outmill.ListQuery) (roles.DeadPage, error) {
	page, err := m.File.DeadLetters(ctx, query)
	m.change(query, &page)
	return page, err
}

// asksLetters changes each query of dead letters.
type asksLetters struct {
	mutants.File
	change func(*outmill.ListQuery)
}

func (m asksLetters) DeadLetters(ctx context.Context, query outmill.ListQuery) (roles.DeadPage, error) {
	m.change(&query)
	return m.File.DeadLetters(ctx, query)
}

type listsAllDead struct{ mutants.File }

func (m listsAllDead) DeadLetters(ctx context.Context, query outmill.ListQuery) (roles.DeadPage, error) {
	query.Status = outmill.StatusDead
	found, err := m.Find(ctx, query)
	page := roles.DeadPage{Examined: found.Examined, Next: found.Next, Done: found.Done}
	for _, r := range found.Records {
		page.Letters = append(page.Letters, roles.DeadLetter{Record: r})
	}
	return page, err
}

type looksAtAllLetters struct{ mutants.File }

func (m looksAtAllLetters) DeadLetters(ctx context.Context, query outmill.ListQuery) (roles.DeadPage, error) {
	for {
		page, err := m.File.DeadLetters(ctx, query)
		if err != nil || page.Done {
			return page, err
		}
		query.After = page.Next
	}
}

type listsLate struct{ mutants.File }

func (m listsLate) DeadLetters(ctx context.Context, query outmill.ListQuery) (roles.DeadPage, error) {
	return m.File.DeadLetters(context.WithoutCancel(ctx), query)
}

// auditsOtherwise changes each page of the audit.
type auditsOtherwise struct {
	mutants.File
	change func(roles.AuditQuery, *roles.AuditPage)
}

func (m auditsOtherwise) Audited(ctx context.Context, query roles.AuditQuery) (roles.AuditPage, error) {
	page, err := m.File.Audited(ctx, query)
	m.change(query, &page)
	return page, err
}

const auditSomething = `INSERT INTO outmill_entries (kind, key, at, made_at, value)
SELECT 'audit', printf('%019d', 9000000000000000000 - count(*)), 0, 1, '{"Action":"requeue","Details":{}}' FROM outmill_entries`

type auditsCalls struct{ mutants.File }

func (m auditsCalls) RequeueWhere(ctx context.Context, query outmill.ListQuery) (roles.Page, error) {
	return m.File.RequeueWhere(storekit.WithActor(context.Background(), storekit.ActorOf(ctx)), query)
}

// auditsOnce takes all calls for calls of the first command.
type auditsOnce struct {
	mutants.File
	first context.Context
}

func (m *auditsOnce) Requeue(ctx context.Context, ids ...outmill.WorkItemID) (int, error) {
	if m.first == nil {
		m.first = ctx
	}
	return m.File.Requeue(m.first, ids...)
}

type auditsAll struct{ mutants.File }

func (m auditsAll) Requeue(ctx context.Context, ids ...outmill.WorkItemID) (int, error) {
	n, err := m.File.Requeue(ctx, ids...)
	if err == nil {
		err = run(ctx, m.File, auditSomething)
	}
	return n, err
}

type auditsAcks struct{ mutants.File }

func (m auditsAcks) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	if err := m.File.Ack(ctx, by, leases); err != nil {
		return err
	}
	return run(ctx, m.File, auditSomething)
}

type auditsFromAnywhere struct{ mutants.File }

func (m auditsFromAnywhere) Audited(ctx context.Context, query roles.AuditQuery) (roles.AuditPage, error) {
	if query.After == "elsewhere" {
		query.After = ""
	}
	return m.File.Audited(ctx, query)
}

// auditsHere has the entries of its own calls only.
type auditsHere struct {
	mutants.File
	requeued bool
}

func (m *auditsHere) Requeue(ctx context.Context, ids ...outmill.WorkItemID) (int, error) {
	m.requeued = true
	return m.File.Requeue(ctx, ids...)
}

func (m *auditsHere) Audited(ctx context.Context, query roles.AuditQuery) (roles.AuditPage, error) {
	if !m.requeued {
		return roles.AuditPage{Done: true}, nil
	}
	return m.File.Audited(ctx, query)
}

type deletesAudit struct{ mutants.File }

func (m deletesAudit) DeleteOldAudit(ctx context.Context, limit int) (int, error) {
	older := storekit.AuditRetention.Microseconds()
	if err := run(ctx, m.File, `UPDATE outmill_entries SET at = at - ? WHERE kind = 'audit'`, older); err != nil {
		return 0, err
	}
	return m.File.DeleteOldAudit(ctx, limit)
}

type auditsLate struct{ mutants.File }

func (m auditsLate) Audited(ctx context.Context, query roles.AuditQuery) (roles.AuditPage, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return m.File.Audited(ctx, query)
}
