package next

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

var (
	_ driver.Notifying = (*Driver)(nil)
	_ driver.Hearer    = (*Driver)(nil)
)

const (
	// awaitEvents is how long the server waits for an event before it answers with none. A stream to which it gives no answer at all is
	// ended: the connection may be broken, which this end would otherwise not notice for a quarter of an hour.
	awaitEvents = time.Second
	deafAfter   = 30 * time.Second
)

// Notifier has the hints of this process, and of those that it hears of.
func (d *Driver) Notifier() *storekit.Notifier { return &d.hearing.Notifier }

// HearsOthers reports whether the driver opens a change stream. See driver.Hearer.
func (d *Driver) HearsOthers() bool { return !d.config.WithoutChangeStream }

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

// listen passes the events of a change stream on until it breaks. An event has only topics, because it may not be larger than a document.
func (d *Driver) listen(ctx context.Context) (worked bool) {
	// Change streams report only documents that a majority has.
	records := d.records.Clone(options.Collection().SetReadConcern(readconcern.Majority()))
	stream, err := records.Watch(alone(ctx), mongo.Pipeline{
		{{Key: "$match", Value: told}},
		{{Key: "$project", Value: ascending("_id", "fullDocument.topic", "fullDocument."+fieldLast, "fullDocument."+fieldWakes)}},
	}, options.ChangeStream().SetMaxAwaitTime(awaitEvents))
	if err != nil {
		return false
	}
	defer func() {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortWithin)
		defer cancel()
		_ = stream.Close(own)
	}()
	d.hearing.Begin()
	for d.next(ctx, stream) {
	}
	return true
}

// next passes the next event on, if one comes soon. It returns false when the stream has ended.
func (d *Driver) next(ctx context.Context, stream *mongo.ChangeStream) bool {
	within, cancel := context.WithTimeout(ctx, deafAfter)
	defer cancel()
	if !stream.TryNext(within) {
		return stream.Err() == nil && stream.ID() != 0
	}
	d.hearing.Note()
	if topics, wakes := topicsOf(stream.Current); wakes {
		d.hearing.Notify(topics...)
	}
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
