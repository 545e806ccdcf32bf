package kafka

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// delivery is one message that is being sent.
type delivery struct {
	// index is the message's index in the call; topic is its destination.
	index     int
	messageID string
	topic     string
	// record is the record of the first attempt; later attempts send copies.
	record kgo.Record
	sent   bool
	// size is the number of bytes that count against MaxBufferedBytes.
	size int

	job *job
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

// job is the part of a call that the lane gets at a time.
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
		j.bytes += d.size
	}
	return j
}

// failures returns the deliveries that failed, with their errors. A delivery that is not
// settled yet fails with pending.
func (j *job) failures(pending error) []failure {
	j.mu.Lock()
	defer j.mu.Unlock()
	var failures []failure
	for _, d := range j.deliveries {
		switch {
		case !d.settled:
			failures = append(failures, failed(d, pending))
		case d.err != nil:
			failures = append(failures, failed(d, d.err))
		}
	}
	return failures
}

// failure is a delivery that failed.
type failure struct {
	*delivery
	reason error
	// batched says that the record was in a batch of its partition, so that another record may
	// have caused the failure.
	batched   bool
	partition int32
}

func failed(d *delivery, reason error) failure { return failure{delivery: d, reason: reason} }

// parts cuts the deliveries of a call into the parts for jobs.
func parts(deliveries []*delivery, maxRecords, maxBytes int) [][]*delivery {
	var cut [][]*delivery
	begin, bytes := 0, 0
	for i, d := range deliveries {
		if i > begin && (i-begin == maxRecords || bytes+d.size > maxBytes) {
			cut = append(cut, deliveries[begin:i])
			begin, bytes = i, 0
		}
		bytes += d.size
	}
	if begin < len(deliveries) {
		cut = append(cut, deliveries[begin:])
	}
	return cut
}
