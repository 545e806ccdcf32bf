package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
)

// auditKind is the kind of the entries of the audit. At is the end of the retention, Made the time of the first
// change, Value a storedAudit, and the key the number, so that the largest number comes first. commandKind is
// the kind of entries that lead from a command to its number.
const (
	auditKind   = "audit"
	commandKind = "audit command"
)

type storedAudit struct {
	Actor   string
	Action  roles.AuditAction
	Count   int
	Details json.RawMessage
}

// auditKey has the digits of what is left to the largest number.
func auditKey(number int64) string { return fmt.Sprintf("%019d", math.MaxInt64-number) }

func auditNumber(key string) int64 {
	left, err := strconv.ParseInt(key, 10, 64)
	if err != nil {
		return 0
	}
	return math.MaxInt64 - left
}

// audit notes a change of count records, in the entry of its command if that has one.
func (t *tx) audit(ctx context.Context, entry roles.AuditEntry, count int) error {
	if count == 0 {
		return nil
	}
	known, err := t.entry(ctx, false, commandKind, entry.Command)
	if err != nil {
		return err
	}
	if known != nil {
		return t.addToAudit(ctx, known.Value, entry, count)
	}
	stored := storedAudit{Actor: entry.Actor, Action: entry.Action, Count: count, Details: json.RawMessage(entry.Details())}
	made := driver.Entry{Kind: auditKind, At: t.after(t.e.config.RetainAudit), Made: t.now}
	if made.Value, err = asText(stored); err != nil {
		return err
	}
	// A change of the same record that has committed has a smaller number, although it may have begun later.
	newest, err := t.Range(ctx, auditKind, "", 1)
	if err != nil {
		return err
	}
	number := int64(t.now)
	if len(newest) > 0 {
		number = max(number, auditNumber(newest[0].Key)+1)
	}
	for free := []bool{false}; !free[0]; number++ {
		made.Key = auditKey(number)
		if free, err = t.Take(ctx, made); err != nil {
			return err
		}
	}
	return t.Put(ctx, driver.Entry{Kind: commandKind, Key: entry.Command, At: made.At, Made: t.now, Value: made.Key})
}

// addToAudit adds what a further transaction of a command has done.
func (t *tx) addToAudit(ctx context.Context, key string, entry roles.AuditEntry, count int) error {
	known, err := t.entry(ctx, false, auditKind, key)
	if err != nil || known == nil {
		return err
	}
	stored, err := valueAs[storedAudit](*known)
	if err != nil {
		return err
	}
	if stored.Action != entry.Action {
		stored.Action, stored.Count = entry.Action, 0
	}
	stored.Count += count
	stored.Details = json.RawMessage(entry.Details())
	return t.putAs(ctx, *known, stored)
}

// auditEntries returns the newest entries with a smaller number.
func (e *Engine) auditEntries(ctx context.Context, operation string, before int64, limit int) ([]roles.AuditEntry, error) {
	return valueOf(ctx, e.view, operation, func(ctx context.Context, t *tx) ([]roles.AuditEntry, error) {
		entries, err := t.Range(ctx, auditKind, auditKey(before), limit)
		list := make([]roles.AuditEntry, 0, len(entries))
		for _, e := range entries {
			stored, bad := valueAs[storedAudit](e)
			entry := roles.AuditEntry{Number: auditNumber(e.Key), At: e.Made.Of(), Actor: stored.Actor, Action: stored.Action, Count: stored.Count}
			if bad == nil {
				bad = entry.SetDetails(string(stored.Details))
			}
			err = cmp.Or(err, bad)
			list = append(list, entry)
		}
		return list, err
	})
}

// DeleteOldAudit deletes entries that are older than Config.RetainAudit. See roles.Repairs.
func (e *Engine) DeleteOldAudit(ctx context.Context, limit int) (int, error) {
	return e.count(ctx, "delete old audit entries", limit, func(ctx context.Context, t *tx) (int, error) {
		if _, err := t.deleteOld(ctx, commandKind, limit); err != nil {
			return 0, err
		}
		return t.deleteOld(ctx, auditKind, limit)
	})
}
