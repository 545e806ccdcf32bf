package mongo

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill/roles"
)

// auditID is the id of the document in the meta collection that has the last number of the audit.
const auditID = "audit"

// auditEntry is a document of the audit.
type auditEntry struct {
	Number    int64             `bson:"_id"`
	ChangedAt time.Time         `bson:"changed_at"`
	Actor     string            `bson:"actor"`
	Action    roles.AuditAction `bson:"action"`
	Count     int               `bson:"count"`
	Details   string            `bson:"details"`
	// Command is the same in all transactions that share the document.
	Command string `bson:"command"`
}

func (d auditEntry) entry() (roles.AuditEntry, error) {
	e := roles.AuditEntry{Number: d.Number, At: d.ChangedAt.UTC(), Actor: d.Actor, Action: d.Action, Count: d.Count}
	err := e.SetDetails(d.Details)
	return e, err
}

// note writes the entry of a transaction that changes count records, or adds them to the entry of
// its command.
func (s *Store) note(ctx context.Context, entry roles.AuditEntry, count int) error {
	if count == 0 {
		return nil
	}
	before := bson.D{{Key: "$cond", Value: bson.A{bson.D{{Key: "$eq", Value: bson.A{"$action", entry.Action}}}, "$count", 0}}}
	added, err := s.audit.UpdateOne(ctx, where("command", entry.Command), pipeline(bson.D{
		{Key: "count", Value: bson.D{{Key: "$add", Value: bson.A{before, count}}}},
		{Key: "action", Value: entry.Action}, {Key: "details", Value: literal(entry.Details())},
	}))
	if err != nil || added.MatchedCount > 0 {
		return err
	}
	number, at, err := s.nextEntry(alone(ctx))
	if err != nil {
		return err
	}
	_, err = s.audit.InsertOne(ctx, auditEntry{number, at, entry.Actor, entry.Action, count, entry.Details(), entry.Command})
	return err
}

// nextEntry returns a number that no entry has, and the server's time. It runs outside the
// transaction of the change, so that two operators do not wait for each other. A transaction that
// is repeated leaves a gap.
func (s *Store) nextEntry(ctx context.Context) (number int64, at time.Time, err error) {
	var found struct {
		Number int64     `bson:"number"`
		At     time.Time `bson:"at"`
	}
	last := bson.D{{Key: "$ifNull", Value: bson.A{"$number", int64(0)}}}
	err = s.meta.FindOneAndUpdate(ctx, where("_id", auditID), pipeline(bson.D{
		{Key: "number", Value: bson.D{{Key: "$add", Value: bson.A{last, int64(1)}}}}, {Key: "at", Value: "$$NOW"},
	}), options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Decode(&found)
	if driver.IsDuplicateKeyError(err) {
		// Another process has just inserted the document.
		err = fmt.Errorf("%w: %w", errContended, err)
	}
	return found.Number, found.At, err
}

// AuditEntries returns the newest entries with a smaller number.
func (b bench) AuditEntries(ctx context.Context, operation string, before int64, limit int) (entries []roles.AuditEntry, err error) {
	err = b.do(ctx, operation, func(ctx context.Context) error {
		found, err := findAll[auditEntry](ctx, b.audit, where("_id", bson.D{{Key: "$lt", Value: before}}),
			first(limit, bson.D{{Key: "_id", Value: -1}}))
		if err != nil {
			return err
		}
		entries = make([]roles.AuditEntry, len(found))
		for i, d := range found {
			if entries[i], err = d.entry(); err != nil {
				return err
			}
		}
		return nil
	})
	return entries, err
}

// DeleteOldAudit deletes entries that are older than Config.RetainAudit. It looks at the oldest
// entries only, and needs no index on the time. See roles.Repairs.
func (s *Store) DeleteOldAudit(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete old audit entries", limit, func(ctx context.Context, limit int) (int, int, error) {
		now, err := s.now(ctx)
		if err != nil {
			return 0, 0, err
		}
		oldest, err := findAll[auditEntry](ctx, s.audit, where("_id", bson.D{{Key: "$gt", Value: int64(0)}}),
			first(limit, ascending("_id"), "changed_at"))
		var ids bson.A
		for _, d := range oldest {
			if !d.ChangedAt.After(now.Add(-s.config.RetainAudit)) {
				ids = append(ids, d.Number)
			}
		}
		if err != nil || len(ids) == 0 {
			return 0, 0, err
		}
		result, err := s.audit.DeleteMany(ctx, in("_id", ids))
		if err != nil {
			return 0, 0, err
		}
		return len(ids), int(result.DeletedCount), nil
	})
}
