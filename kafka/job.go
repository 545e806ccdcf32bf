package kafka

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// delivery is one message on its way.
type delivery struct {
	// Context is the flight's. The client hands a record back with its context:
	// that is how its delivery is found again.
	context.Context

	// index is the message's place in the call, topic where it should go.
	index     int
	messageID string
	topic     string
	record    *kgo.Record

	job    *job
	flight *flight
	// placed says that the client has put the record into a partition's batch.
	placed bool
	// settled and err are the outcome, guarded by the job's lock.
	settled bool
	err     error
}

func (d *delivery) settle(err error) {
	d.job.mu.Lock()
	defer d.job.mu.Unlock()
	d.settled, d.err = true, err
	if d.job.left--; d.job.left == 0 {
		close(d.job.done)
	}
}

// job is what one call hands to the lane at a time.
type job struct {
	deliveries []*delivery
	bytes      int
	// done is closed when all deliveries are settled.
	done chan struct{}

	mu   sync.Mutex
	left int
}

func newJob(deliveries []*delivery) *job {
	j := &job{deliveries: deliveries, done: make(chan struct{}), left: len(deliveries)}
	for _, d := range deliveries {
		d.job = j
		j.bytes += recordSize(d.record)
	}
	return j
}

// failures returns the deliveries that did not arrive and why. A delivery that
// is not settled yet fails with pending.
func (j *job) failures(pending error) []failure {
	j.mu.Lock()
	defer j.mu.Unlock()
	var failed []failure
	for _, d := range j.deliveries {
		switch {
		case !d.settled:
			failed = append(failed, failure{d, pending})
		case d.err != nil:
			failed = append(failed, failure{d, d.err})
		}
	}
	return failed
}

type failure struct {
	*delivery
	err error
}

// parts cuts the deliveries of a call into runs that the lane takes at a time.
func parts(deliveries []*delivery, maxRecords, maxBytes int) [][]*delivery {
	var cut [][]*delivery
	begin, bytes := 0, 0
	for i, d := range deliveries {
		size := recordSize(d.record)
		if i > begin && (i-begin == maxRecords || bytes+size > maxBytes) {
			cut = append(cut, deliveries[begin:i])
			begin, bytes = i, 0
		}
		bytes += size
	}
	if begin < len(deliveries) {
		cut = append(cut, deliveries[begin:])
	}
	return cut
}
