package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// diagnoseWithin limits the time for finding out why a round has failed.
const diagnoseWithin = 2 * time.Second

// round sends deliveries until each is settled.
type round struct {
	lane   *lane
	client *client
	ctx    context.Context

	// gone says that a topic no longer exists. suspect says that the client failed a delivery,
	// perhaps because of an error in the client itself.
	gone, suspect bool
	// outage is the reason why the round's time ran out.
	outage error
}

// send sends the deliveries once and settles them. It returns those that were refused
// unsettled, because another record of the same batch may have caused the refusal. err is
// the last error that a record did not cause.
func (r *round) send(deliveries []*delivery) (refused []failure, err error) {
	for _, f := range produce(r.ctx, r.client, deliveries) {
		switch blameOf(f.reason) {
		case blameRecord:
			if f.batched {
				refused = append(refused, f)
			} else {
				f.settle(refusedError(&f.record, f.reason))
			}
			continue
		case blameTopic:
			r.lose(f)
			err = topicError(f.topic, f.reason)
		case blameClient:
			r.suspect = true
			r.lane.topics.forgetAll()
			err = fmt.Errorf("kafka: %w", f.reason)
		case blameBroker:
			r.lane.topics.forgetAll()
			err = r.explain(f.reason)
		}
		f.settle(err)
	}
	return refused, err
}

// singleOut finds the records that cause a refusal among the refused records of one
// partition, and delivers the others. It sends them again in halves, in their order. After
// any other error all remaining records fail with that error.
func (r *round) singleOut(refused []failure) {
	todo := halves(nil, refused)
	for len(todo) > 0 {
		part := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		again, err := r.send(deliveriesOf(part))
		todo = halves(todo, again)
		if err == nil {
			continue
		}
		for _, part := range todo {
			for _, f := range part {
				f.settle(err)
			}
		}
		return
	}
}

// halves pushes the halves of a refused part on the stack, the first half on top. A record
// that was refused alone is the cause itself, so it fails.
func halves(todo [][]failure, refused []failure) [][]failure {
	switch n := len(refused); n {
	case 0:
		return todo
	case 1:
		refused[0].settle(refusedError(&refused[0].record, refused[0].reason))
		return todo
	default:
		return append(todo, refused[n/2:], refused[:n/2])
	}
}

func (r *round) lose(f failure) {
	r.lane.topics.forget(f.topic)
	if errors.Is(f.reason, kerr.UnknownTopicOrPartition) || errors.Is(f.reason, kerr.UnknownTopicID) {
		r.gone = true
	}
}

// explain replaces a timeout by the reason for it.
func (r *round) explain(err error) error {
	if r.ctx.Err() == nil {
		return fmt.Errorf("kafka: %w", err)
	}
	if r.outage == nil {
		r.outage = r.diagnose()
	}
	return r.outage
}

func (r *round) diagnose() error {
	ctx, cancel := context.WithTimeout(context.Background(), min(diagnoseWithin, r.lane.timeout))
	defer cancel()
	late := fmt.Errorf("no acknowledgement within kafka.Config.DeliveryTimeout (%s)", r.lane.timeout)
	if err := r.client.Ping(ctx); err != nil {
		return unreachableError(r.lane.brokers, fmt.Errorf("%w: %w", late, err))
	}
	return fmt.Errorf("kafka: %w, though brokers answer: check that the topic's partitions have leaders and min.insync.replicas in sync", late)
}

// repair replaces a client that the next round cannot use.
//
// A client keeps requesting a topic that was deleted, and does not accept the new topic if
// it was created again. The client can purge the topic, but then it would number its
// records from the beginning, while the partitions may remember the old numbers: they would
// treat new records as repeated ones, acknowledge them and drop them. Therefore repair
// makes a new client, which is a new producer.
func (r *round) repair() {
	l := r.lane
	if r.ctx.Err() != nil {
		l.lastAbort = time.Now()
	}
	gone := r.gone && time.Since(l.lastAbort) > lateWrites
	if !gone && !r.isStuck() {
		return
	}
	if err := l.replaceClient(); err != nil {
		l.logger.Error("kafka: cannot make a new client, so the old one stays in use", err, nil)
	}
}

// lateWrites is the time for which a broker may still process a request after its round has
// ended. Only the client that sent the request can fence it.
const lateWrites = time.Minute

// isStuck reports whether the brokers refused the client a producer id. Such a client fails
// all further records, even after the reason has passed.
func (r *round) isStuck() bool {
	if !r.suspect {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), diagnoseWithin)
	defer cancel()
	_, _, err := r.client.ProducerID(ctx)
	return err != nil
}

// byPartition groups failures, keeping their order.
func byPartition(failures []failure) [][]failure {
	type partition struct {
		topic  string
		number int32
	}
	places := map[partition]int{}
	var groups [][]failure
	for _, f := range failures {
		p := partition{f.topic, f.partition}
		place, ok := places[p]
		if !ok {
			place = len(groups)
			places[p] = place
			groups = append(groups, nil)
		}
		groups[place] = append(groups[place], f)
	}
	return groups
}

func deliveriesOf(failures []failure) []*delivery {
	deliveries := make([]*delivery, len(failures))
	for i, f := range failures {
		deliveries[i] = f.delivery
	}
	return deliveries
}
