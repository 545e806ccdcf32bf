package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// diagnoseWithin bounds the question why a round has failed.
const diagnoseWithin = 2 * time.Second

// round sends deliveries until each is settled.
type round struct {
	lane   *lane
	client *client
	ctx    context.Context

	// gone says that a topic is gone, suspect that the client failed a delivery
	// for a reason that may be its own.
	gone, suspect bool
	// outage explains why the time is over.
	outage error
}

// send sends the deliveries once and settles them, save those that were refused
// for something that another record of the same batch may have caused. err is
// the last error that was about something else than a record.
func (r *round) send(deliveries []*delivery) (refused []failure, err error) {
	for _, f := range fly(r.ctx, r.client, deliveries) {
		switch blameOf(f.reason) {
		case blameRecord:
			if f.placed {
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

// singleOut finds the guilty among the refused records of one partition, by
// halves and in their order, and delivers the others. Where something else
// goes wrong, what is left fails with it.
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

// halves puts the halves of a refused part on the stack, the first one on top.
// A record that was refused alone is guilty.
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

// explain says more of an error than that the time was over.
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

// repair leaves a client that the next round can work with.
//
// A client goes on asking for a topic that is gone, and does not take one that
// was deleted and created again for the same. It can be told to forget the
// topic, but would then number its records from the beginning while the
// partitions may still remember the numbers: they would take new records for
// repeated ones, acknowledge them and drop them. Hence a new client, which is
// another producer.
func (r *round) repair() {
	l := r.lane
	if r.ctx.Err() != nil {
		l.lastAbort = time.Now()
	}
	gone := r.gone && time.Since(l.lastAbort) > zombieLife
	if !gone && !r.isStuck() {
		return
	}
	if err := l.replaceClient(); err != nil {
		l.logger.Error("kafka: cannot make a new client, the old one stays", err, nil)
	}
}

// zombieLife is how long a request that was given up may still be carried out.
// Only the client that sent it can shut it out.
const zombieLife = time.Minute

// isStuck reports whether the client was refused a producer id. It fails
// everything from then on, even when the reason has passed.
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
