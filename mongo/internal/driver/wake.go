package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
	"weak"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/mongo/internal/hearing"
	"github.com/outmill/outmill/mongo/internal/mongoerr"
	"github.com/outmill/outmill/storekit"
)

var (
	_ driver.Notifying = (*Driver)(nil)
	_ driver.Hearer    = (*Driver)(nil)

	_ storekit.FailingCaller = (*Driver)(nil)
)

const (
	// awaitEvents is how long the server waits for an event before it answers with none. A stream to which it gives no answer at all is
	// ended: the connection may be broken, which this end would otherwise not notice for a quarter of an hour.
	awaitEvents = time.Second
	deafAfter   = 30 * time.Second
	// awaitInCluster is awaitEvents of the stream of a cluster, which there is one of.
	awaitInCluster = 10 * time.Second
)

// Notifier has the hints of this process, and of those that it hears of.
func (d *Driver) Notifier() *storekit.Notifier { return &d.hearing.Notifier }

// HearsOthers reports whether the driver opens a change stream. See driver.Hearer.
func (d *Driver) HearsOthers() bool { return !d.config.WithoutChangeStream }

// FailingCalls reports the change stream while it cannot be opened, also where the server does not allow it. See storekit.FailingCaller.
func (d *Driver) FailingCalls() []outmill.FailingCall { return d.hearing.FailingCalls() }

// Hear follows the change stream of the records until ctx ends. See driver.Hearer.
func (d *Driver) Hear(ctx context.Context) {
	if !d.config.WithoutChangeStream {
		d.hearing.Hear(ctx)
	}
}

// An Insert marks one document, and a change those that are given back. These make events.
const (
	// fieldLast is true in the last document that is due at once, or false in the last one if none is.
	fieldLast = "last"
	// fieldWakes has the topics of the Insert, if they are not that of the document; none stands for any topic.
	fieldWakes = "wakes"
	fieldWoken = "woken"
)

// notice is what the marked row of an Insert tells.
type notice struct {
	marked outmill.WorkItemID
	due    bool
	topics []string
}

// noticeOf returns what to tell of rows.
func noticeOf(rows []driver.NewRow) (n notice) {
	var topics storekit.TopicSet
	n.marked = rows[len(rows)-1].ID
	for i := range rows {
		if rows[i].Stage == driver.Ready {
			n.marked, n.due = rows[i].ID, true
			topics.Add(rows[i].Topic)
		}
	}
	n.topics = topics.List()
	return n
}

// appendTo marks the row if it is the one that tells.
func (n *notice) appendTo(dst []byte, r *driver.NewRow) []byte {
	if r.ID != n.marked {
		return dst
	}
	dst = bsoncore.AppendBooleanElement(dst, fieldLast, n.due)
	if len(n.topics) <= 1 {
		return dst
	}
	list, dst := bsoncore.AppendArrayElementStart(dst, fieldWakes)
	for i, topic := range n.topics {
		dst = bsoncore.AppendStringElement(dst, fmt.Sprint(i), topic)
	}
	dst, _ = bsoncore.AppendArrayEnd(dst, list)
	return dst
}

// givesBack reports whether a change opens a row that was settled, or makes one due before the end of its lease. What becomes due by time
// is found by polling.
func givesBack(was, now *driver.Row, at driver.Time) bool {
	return was.Stage > driver.Leased && now.Stage <= driver.Leased ||
		now.Stage == driver.Ready && was.Stage == driver.Leased && was.Wake > at
}

// told selects the events that tell of new rows, and of those that became due. The server compares all of it with its oplog, and makes no
// event of other changes. A drop or a restore may be the start of anything.
var told = bson.D{{Key: "$or", Value: bson.A{
	bson.D{{Key: "operationType", Value: "insert"}, {Key: "fullDocument." + fieldLast, Value: bson.D{{Key: "$exists", Value: true}}}},
	bson.D{{Key: "operationType", Value: "update"}, above("updateDescription.updatedFields."+fieldWoken, 0)},
	bson.D{in("operationType", bson.A{"drop", "rename"})},
}}}

// streamOf names a change stream: no database stands for all of a cluster.
type streamOf struct {
	client               weak.Pointer[mongo.Client]
	database, collection string
}

// listener is that of the stream of the collection, or, if the config says so, of one that all databases of a cluster share.
func (d *Driver) listener() hearing.Listener {
	of := streamOf{weak.Make(d.client), d.db.Name(), d.records.Name()}
	log := storekit.NewLog(d.config.Logger, d.config.Name, nil)
	follow := func(watch func(ctx context.Context) (cursorStream, error)) func(context.Context, *hearing.Ears) error {
		return func(ctx context.Context, to *hearing.Ears) error {
			stream, err := watch(alone(ctx))
			if err != nil {
				return notAllowed(err)
			}
			return listen(ctx, stream, to)
		}
	}
	own := hearing.Listener{Of: of, Part: of.database, What: "change stream of the collection", Log: log, Listen: follow(d.watch)}
	if !d.config.Cluster {
		return own
	}
	of.database = ""
	return hearing.Listener{
		Of: of, Part: own.Part, What: "change stream of the whole cluster", Log: log, Listen: follow(d.watchCluster), Else: &own,
	}
}

// shown are the fields of an event. It has only topics, because it may not be larger than a document.
var shown = bson.D{{Key: "$project", Value: ascending("_id", "ns.db", "fullDocument.topic", "fullDocument."+fieldLast,
	"fullDocument."+fieldWakes)}}

// cursorStream is a change stream, and the collection of its cursor.
type cursorStream struct {
	*mongo.ChangeStream
	in *mongo.Collection
}

func (d *Driver) watch(ctx context.Context) (cursorStream, error) {
	// Change streams report only documents that a majority has.
	records := d.records.Clone(options.Collection().SetReadConcern(readconcern.Majority()))
	stream, err := records.Watch(ctx, mongo.Pipeline{{{Key: "$match", Value: told}}, shown},
		options.ChangeStream().SetMaxAwaitTime(awaitEvents))
	return cursorStream{stream, records}, err
}

func (d *Driver) watchCluster(ctx context.Context) (cursorStream, error) {
	ofRecords := append(bson.D{{Key: "ns.coll", Value: d.records.Name()}}, told...)
	stream, err := d.client.Watch(ctx, mongo.Pipeline{{{Key: "$match", Value: ofRecords}}, shown},
		options.ChangeStream().SetMaxAwaitTime(awaitInCluster))
	return cursorStream{stream, d.client.Database("admin", databaseOptions()).Collection("$cmd.aggregate")}, err
}

// notAllowed says of an error that the server refuses the stream, whenever it is asked: without the right to it, without an oplog, and in
// a cluster where only the streams of single databases are allowed.
func notAllowed(err error) error {
	for _, code := range []int{mongoerr.CodeUnauthorized, mongoerr.CodeNoChangeStreams, mongoerr.CodeInvalidOptions} {
		if mongoerr.HasCode(err, code) {
			return fmt.Errorf("%w (%w)", hearing.ErrNotAllowed, err)
		}
	}
	return err
}

// errStreamEnded says that the collection of the stream was dropped or renamed.
var errStreamEnded = errors.New("the server has ended the change stream: the collection was dropped or renamed")

// listen passes the events of a change stream on until it breaks.
func listen(ctx context.Context, stream cursorStream, to *hearing.Ears) error {
	cursor := stream.ID()
	defer func() {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortWithin)
		defer cancel()
		_ = stream.Close(own)
		// A client whose context ends while it waits for an event forgets the cursor, which the server keeps then for half an hour.
		_ = stream.in.Database().RunCommand(alone(own),
			bson.D{{Key: "killCursors", Value: stream.in.Name()}, {Key: "cursors", Value: bson.A{cursor}}}).Err()
	}()
	to.Begin()
	for next(ctx, stream.ChangeStream, to) {
		cursor = stream.ID()
	}
	return cmp.Or(stream.Err(), errStreamEnded)
}

// next passes the next event on, if one comes soon. It returns false when the stream has ended.
func next(ctx context.Context, stream *mongo.ChangeStream, to *hearing.Ears) bool {
	within, cancel := context.WithTimeout(ctx, deafAfter)
	defer cancel()
	if !stream.TryNext(within) {
		return stream.Err() == nil && stream.ID() != 0
	}
	database, _ := stream.Current.Lookup("ns", "db").StringValueOK()
	topics, wakes := topicsOf(stream.Current)
	to.Report(database, wakes, topics...)
	return true
}

// topicsOf returns the topics of an event; none stands for any topic. wakes is false for the append of rows of which none is due.
func topicsOf(raw bson.Raw) (topics []string, wakes bool) {
	var e struct {
		Document struct {
			Topic string   `bson:"topic"`
			Last  *bool    `bson:"last"`
			Wakes []string `bson:"wakes"`
		} `bson:"fullDocument"`
	}
	switch err := bson.Unmarshal(raw, &e); {
	case err != nil || e.Document.Topic == "":
		return nil, true
	case e.Document.Last != nil && !*e.Document.Last:
		return nil, false
	case e.Document.Wakes != nil:
		return e.Document.Wakes, true
	}
	return []string{driver.LineOf("", e.Document.Topic).Topic}, true
}
