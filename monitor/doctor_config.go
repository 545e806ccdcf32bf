package monitor

import (
	"cmp"
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// DoctorConfig are the settings of [Doctor]. The zero value is ready to use.
type DoctorConfig struct {
	// Name names the store in the report; "" is "outbox".
	Name string
	// Tasks are those for which the store's user must have the rights; nil is all of them.
	Tasks []roles.Task
	// MaxAge is how long a record may be due; 0 is 5 minutes.
	MaxAge time.Duration
	// Unseen is how long a group may be without a registration; 0 is 5 minutes. Workers
	// register about once a minute.
	Unseen time.Duration
	// EndedLease is how long ago a lease may have ended before somebody takes its record; 0 is 2
	// minutes. Janitors look once a minute.
	EndedLease time.Duration
	// MaxHandling is how long a handler may run; 0 is 5 minutes. Workers report handlers that have run
	// for twice their lease.
	MaxHandling time.Duration
	// FailingFor is how long a worker's calls, such as its claims, may fail without a success; 0 is 1
	// minute.
	FailingFor time.Duration
	// OpenTransaction is how long a transaction of the database may be open; 0 is 5 minutes.
	OpenTransaction time.Duration
	// LockWait is how long a session may wait for a lock; 0 is 5 seconds.
	LockWait time.Duration
	// ClockDifference is how much the clocks of the database and of this machine may differ; 0
	// is 1 second.
	ClockDifference time.Duration
	// QueueUsage is how full PostgreSQL's queue of notifications may be; 0 is 0.1, a tenth.
	QueueUsage float64
	// RetainedWAL is how many bytes of PostgreSQL's write-ahead log a replication slot may keep; 0
	// is 1 GiB.
	RetainedWAL int64
	// Watch is the time between two counts of dead records, to see whether they rise; 0 counts
	// once.
	Watch time.Duration
	// Broker returns an error if the broker does not answer; nil is not checked.
	Broker func(ctx context.Context) error
	// Publishers are checked by [CheckPublisher].
	Publishers []message.Publisher
	// Timeout ends the checks of a store or broker that does not answer; 0 is 30 seconds. The
	// time of Watch comes on top.
	Timeout time.Duration
}

func (c DoctorConfig) withDefaults() DoctorConfig {
	c.Name = cmp.Or(c.Name, "outbox")
	if c.Tasks == nil {
		c.Tasks = []roles.Task{roles.TaskPublish, roles.TaskRead}
	}
	c.MaxAge = cmp.Or(c.MaxAge, 5*time.Minute)
	c.Unseen = cmp.Or(c.Unseen, unseen)
	c.MaxHandling = cmp.Or(c.MaxHandling, 5*time.Minute)
	c.EndedLease = cmp.Or(c.EndedLease, 2*time.Minute)
	c.FailingFor = cmp.Or(c.FailingFor, storekit.FailingFor)
	c.OpenTransaction = cmp.Or(c.OpenTransaction, 5*time.Minute)
	c.LockWait = cmp.Or(c.LockWait, 5*time.Second)
	c.ClockDifference = cmp.Or(c.ClockDifference, time.Second)
	c.QueueUsage = cmp.Or(c.QueueUsage, 0.1)
	c.RetainedWAL = cmp.Or(c.RetainedWAL, 1<<30)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	return c
}

func (c DoctorConfig) check() error {
	for name, d := range map[string]time.Duration{
		"MaxAge": c.MaxAge, "Unseen": c.Unseen, "EndedLease": c.EndedLease, "MaxHandling": c.MaxHandling, "FailingFor": c.FailingFor,
		"OpenTransaction": c.OpenTransaction, "LockWait": c.LockWait,
		"ClockDifference": c.ClockDifference, "Watch": c.Watch, "Timeout": c.Timeout,
	} {
		if d < 0 {
			return storekit.InvalidConfig("DoctorConfig.%s is %v: want 0 (the default) or more", name, d)
		}
	}
	if c.QueueUsage < 0 || c.QueueUsage > 1 {
		return storekit.InvalidConfig("DoctorConfig.QueueUsage is %v: want 0 (the default) to 1", c.QueueUsage)
	}
	if c.RetainedWAL < 0 {
		return storekit.InvalidConfig("DoctorConfig.RetainedWAL is %d: want 0 (the default) or more", c.RetainedWAL)
	}
	for _, task := range c.Tasks {
		if task != roles.TaskPublish && task != roles.TaskRead {
			return storekit.InvalidConfig("DoctorConfig.Tasks has %q: want %q or %q", task, roles.TaskPublish, roles.TaskRead)
		}
	}
	return nil
}

func (c DoctorConfig) request() roles.ExamineRequest {
	return roles.ExamineRequest{
		Tasks: c.Tasks, OpenTransaction: c.OpenTransaction, LockWait: c.LockWait, ClockDifference: c.ClockDifference,
		QueueUsage: c.QueueUsage, RetainedWAL: c.RetainedWAL,
	}
}
