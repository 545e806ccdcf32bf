package kafka

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// lane sends jobs in rounds. A round takes all waiting jobs up to a limit, and ends when
// the result of each record is known.
//
// When a record fails, the client fails all records of the partition that it has at that
// moment. To keep the order, the client must have all records of a round before it reads
// the first failure: otherwise a record could be added, and delivered, just after an
// earlier record of its key has failed. Therefore rounds do not overlap, and produce passes all
// records first. This also separates the refusals of different calls. It costs little,
// because jobs that arrive during a round make the next round larger.
type lane struct {
	newClient func() (*client, error)
	logger    watermill.LoggerAdapter
	brokers   []string
	topics    *topics
	timeout   time.Duration

	maxRecords, maxBytes int

	// lastAbort is the last time that a round ran out of time. Only rounds use it.
	lastAbort time.Time

	mu      sync.Mutex
	client  *client
	waiting []*job
	running bool
	// idle is signalled when the last round has ended.
	idle *sync.Cond
}

func newLane(config Config, logger watermill.LoggerAdapter) (*lane, error) {
	l := &lane{
		newClient:  func() (*client, error) { return newClient(config, logger) },
		logger:     logger,
		brokers:    config.Brokers,
		timeout:    config.DeliveryTimeout,
		maxRecords: config.MaxBufferedRecords,
		maxBytes:   config.MaxBufferedBytes,
	}
	l.topics = &topics{
		client:   l.currentClient,
		brokers:  config.Brokers,
		create:   !config.NoTopicCreation,
		patience: config.TopicTimeout,
		timeout:  config.DeliveryTimeout,
		known:    map[string]bool{},
	}
	l.idle = sync.NewCond(&l.mu)
	var err error
	l.client, err = l.newClient()
	return l, err
}

func (l *lane) currentClient() *client {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.client
}

// submit queues a job. The lane has a goroutine only while there is work.
func (l *lane) submit(j *job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, j)
	if !l.running {
		l.running = true
		go l.run()
	}
}

// withdraw removes a job from the queue, and reports false if a round has taken it.
func (l *lane) withdraw(j *job) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiting, j)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return true
}

// close waits for the rounds to end. The caller must submit no further job.
func (l *lane) close() {
	l.mu.Lock()
	for l.running {
		l.idle.Wait()
	}
	client := l.client
	l.mu.Unlock()
	client.Close()
}

func (l *lane) run() {
	for {
		round := l.next()
		if round == nil {
			return
		}
		l.send(round)
	}
}

// next takes the jobs of a round, at least one. It returns nil if no job waits.
func (l *lane) next() []*delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	var round []*delivery
	bytes := 0
	for len(l.waiting) > 0 {
		j := l.waiting[0]
		if round != nil && (len(round)+len(j.deliveries) > l.maxRecords || bytes+j.bytes > l.maxBytes) {
			break
		}
		if round == nil {
			round = slices.Clip(j.deliveries) // append then copies, and the job keeps its slice
		} else {
			round = append(round, j.deliveries...)
		}
		bytes += j.bytes
		l.waiting = slices.Delete(l.waiting, 0, 1)
	}
	if round == nil {
		l.running = false
		l.idle.Broadcast()
	}
	return round
}

// send settles every delivery of a round.
func (l *lane) send(deliveries []*delivery) {
	ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
	defer cancel()
	r := &round{lane: l, client: l.currentClient(), ctx: ctx}
	refused, _ := r.send(deliveries)
	for _, partition := range byPartition(refused) {
		r.singleOut(partition)
	}
	r.repair()
}

// replaceClient makes a new client. After an error the old one stays in use.
func (l *lane) replaceClient() error {
	client, err := l.newClient()
	if err != nil {
		return err
	}
	l.mu.Lock()
	old := l.client
	l.client = client
	l.mu.Unlock()
	old.Close()
	return nil
}
