// Package doctor looks at a server, at the indexes and rights of a store, and at what other users of the server do.
package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/outmill/outmill/mongo/internal/indexes"
	"github.com/outmill/outmill/mongo/internal/mongoerr"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

const (
	// mostOperations bounds the transactions and operations in a report.
	mostOperations = 20
	// longTransaction is how long a transaction may be open whatever the request says, because
	// MongoDB ends transactions after 60 s by default.
	longTransaction = 30 * time.Second
)

// Server looks for a server that is no replica set.
func Server(ctx context.Context, db *mongo.Database, e *roles.Examination) error {
	var hello struct {
		SetName string `bson:"setName"`
		Message string `bson:"msg"`
	}
	if err := db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return err
	}
	if hello.SetName == "" && hello.Message != "isdbgrid" {
		e.Add(roles.Finding{
			Code: "no_replica_set", Failure: true, Subject: "server",
			Text:   "The server is not a member of a replica set, so it has no transactions and no change streams.",
			Remedy: "Make it a replica set, of which one node is enough: mongod --replSet rs0, and rs.initiate() once.",
		})
	}
	return nil
}

// Locked looks for the lock of fsyncLock, under which no write ends, and no transaction begins.
func Locked(ctx context.Context, client *mongo.Client, e *roles.Examination) error {
	var found struct {
		Locked bool `bson:"fsyncLock"`
	}
	// A user may always ask for its own operations, and the answer has none of them.
	err := client.Database("admin", options.Database().SetReadPreference(readpref.Primary())).RunCommand(ctx,
		bson.D{{Key: "currentOp", Value: 1}, {Key: "$ownOps", Value: true}, {Key: "type", Value: "none"}}).Decode(&found)
	if mongoerr.HasCode(err, mongoerr.CodeUnauthorized) || mongoerr.HasCode(err, mongoerr.CodeCommandNotFound) {
		e.Skip("The lock of fsyncLock was not looked for: the server refuses the command currentOp.")
		return nil
	}
	if err == nil && found.Locked {
		e.Add(roles.Finding{
			Code: "server_locked", Failure: true, Subject: "server",
			Text: "Somebody has locked the server for writes, with fsyncLock. Every call that writes, or reads in a transaction, waits until " +
				"its context ends.",
			Remedy: "If no backup needs the lock, end it as often as it was taken: db.fsyncUnlock().",
		})
	}
	return err
}

// Indexes looks for indexes that are missing or that somebody has changed. The function of returns a collection by its name in an index.
func Indexes(ctx context.Context, of func(name string) *mongo.Collection, wanted []indexes.Index, e *roles.Examination) error {
	present := map[string]map[string]indexes.Definition{}
	for _, i := range wanted {
		in := of(i.Collection)
		if present[i.Collection] == nil {
			found, err := indexes.Of(ctx, in)
			if mongoerr.HasCode(err, mongoerr.CodeUnauthorized) {
				e.Skip("The indexes were not examined, because the user lacks the action listIndexes on %s.", in.Name())
				return nil
			}
			if err != nil {
				return err
			}
			present[i.Collection] = found
		}
		found, ok := present[i.Collection][i.Name]
		if !ok {
			effect := "Calls that need it read the whole collection: they become slower with each document."
			if i.TTL != nil {
				effect = "The server deletes nothing by it, so documents collect until a janitor deletes them."
			}
			e.Add(storekit.MissingPart("index", in.Name()+"."+i.Name, effect, false))
		} else if err := i.Check(in, found); err != nil {
			e.Add(roles.Finding{
				Code: "index_changed", Subject: in.Name() + "." + i.Name,
				Text:   fmt.Sprintf("Somebody has changed an index: %v.", err),
				Remedy: "Drop the index, and call Ensure or run outmill schema ensure.",
			})
		}
	}
	return nil
}

// operation is an operation or a session in the answer of $currentOp.
type operation struct {
	Kind    string   `bson:"type"`
	AppName string   `bson:"appName"`
	Client  string   `bson:"client"`
	Space   string   `bson:"ns"`
	OpID    any      `bson:"opid"`
	Session bson.D   `bson:"lsid"`
	Running int64    `bson:"microsecs_running"`
	Waiting bool     `bson:"waitingForLock"`
	Tx      openedTx `bson:"transaction"`
}

type openedTx struct {
	Open int64 `bson:"timeOpenMicros"`
}

func (o operation) String() string {
	parts := []string{}
	for _, part := range []string{o.AppName, o.Client} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return "an unknown client"
	}
	return strings.Join(parts, ", ")
}

// Operations looks for transactions of all users, and for operations on the database that wait for a lock, which last too long.
func Operations(ctx context.Context, db *mongo.Database, request roles.ExamineRequest, e *roles.Examination) error {
	tooLong := min(request.OpenTransaction, longTransaction)
	cursor, err := db.Client().Database("admin", options.Database().SetReadConcern(readconcern.Local()).
		SetReadPreference(readpref.Primary())).Aggregate(ctx, mongo.Pipeline{
		{{Key: "$currentOp", Value: bson.D{{Key: "allUsers", Value: true}, {Key: "idleSessions", Value: true}}}},
		{{Key: "$match", Value: bson.D{{Key: "$or", Value: bson.A{
			bson.D{{Key: "transaction.timeOpenMicros", Value: bson.D{{Key: "$gt", Value: tooLong.Microseconds()}}}},
			bson.D{{Key: "waitingForLock", Value: true},
				{Key: "microsecs_running", Value: bson.D{{Key: "$gt", Value: request.LockWait.Microseconds()}}}},
		}}}}},
		{{Key: "$limit", Value: mostOperations}},
	})
	var found []operation
	if err == nil {
		err = cursor.All(ctx, &found)
	}
	if mongoerr.HasCode(err, mongoerr.CodeUnauthorized) {
		e.Skip("Transactions and lock waits were not examined, because the user lacks the action inprog on the cluster: " +
			"the role clusterMonitor has it.")
		return nil
	}
	if err != nil {
		return err
	}
	now := time.Now()
	for _, o := range found {
		e.Add(findingsOf(o, db, now, tooLong)...)
	}
	return nil
}

func findingsOf(o operation, db *mongo.Database, now time.Time, tooLong time.Duration) (findings []roles.Finding) {
	if open := time.Duration(o.Tx.Open) * time.Microsecond; open > tooLong {
		findings = append(findings, roles.Finding{
			Code: "old_transaction", Subject: "transaction of " + o.String(), Since: now.Add(-open),
			Text: fmt.Sprintf("A transaction of %s has been open for %v. The server keeps old versions of documents for it, and what it has "+
				"written stays locked for others.", o, open.Round(time.Millisecond)),
			Remedy: "End it: db.adminCommand({killSessions: [" + indexes.Text(sessionID(o.Session)) + "]}). The server ends it after " +
				"transactionLifetimeLimitSeconds.",
		})
	}
	if waits := time.Duration(o.Running) * time.Microsecond; o.Waiting && strings.HasPrefix(o.Space, db.Name()+".") {
		findings = append(findings, roles.Finding{
			Code: "lock_wait", Failure: true, Subject: "operation of " + o.String(), Since: now.Add(-waits),
			Text: fmt.Sprintf("An operation of %s on %s has waited for a lock for %v.", o, o.Space, waits.Round(time.Millisecond)),
			Remedy: "Look for an index build or another command that locks the collection, in db.currentOp(), " +
				"and for a server that fsyncLock has locked.",
		})
	}
	return findings
}

// sessionID is the part of a session's id that killSessions takes.
func sessionID(session bson.D) bson.D {
	for _, e := range session {
		if e.Key == "id" {
			return bson.D{e}
		}
	}
	return bson.D{}
}
