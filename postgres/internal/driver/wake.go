package driver

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/postgres/internal/listen"
	"github.com/outmill/outmill/storekit"
)

var (
	_ driver.Notifying       = (*Driver)(nil)
	_ driver.Hearer          = (*Driver)(nil)
	_ driver.Teller          = (*Driver)(nil)
	_ storekit.FailingCaller = (*Driver)(nil)
)

// hearing is what a driver tells other processes of its commits, and hears of theirs.
type hearing struct {
	*listen.Notices
	notifier storekit.Notifier
}

func (d *Driver) newHearing() {
	interval := d.config.NotifyInterval
	if d.config.Listen == nil {
		interval = -1
	}
	d.hearing.Notices = listen.New(listen.Config{
		Channel: d.names.channel(), Interval: interval, Conns: d.conns, URL: d.config.ListenURL, Settings: d.config.Listen,
		Logger: d.config.Logger, Notify: d.hearing.notifier.Notify, Send: d.notify,
	})
}

// Notifier has the hints of this process, and of those that it hears of.
func (d *Driver) Notifier() *storekit.Notifier { return &d.hearing.notifier }

// HearsOthers reports whether the driver has a connection to listen on. See driver.Hearer.
func (d *Driver) HearsOthers() bool { return !d.hearing.Off() }

// Hear listens until ctx ends. See driver.Hearer.
func (d *Driver) Hear(ctx context.Context) { d.hearing.Listen(ctx) }

// Tell has the readers of other processes look at all topics. See driver.Teller.
func (d *Driver) Tell() { d.hearing.Tell() }

// FailingCalls reports the connection that listens while it cannot be opened. See storekit.FailingCaller.
func (d *Driver) FailingCalls() []outmill.FailingCall { return d.hearing.FailingCalls() }

// ListensWithin returns the budget of the connection that listens. See storekit.BudgetedListener.
func (d *Driver) ListensWithin() *storekit.ConnectionBudget { return d.hearing.Budget() }

// addNotice queues a notification of the rows that are due at once. PostgreSQL commits transactions that notify one after the other,
// so not every append notifies: one that is sent at the end of the interval covers it.
func (t *tx) addNotice(rows []driver.NewRow) {
	if t.d.hearing.Off() {
		return
	}
	topics, ready := readyTopics(rows)
	if !ready {
		return
	}
	if payload, due := t.d.hearing.Due(topics); due {
		t.notifies = true
		t.add("notify", []any{t.d.names.channel(), payload}, nil)
	}
}

// readyTopics are the topics of the rows that are due at once; none stands for any topic.
func readyTopics(rows []driver.NewRow) (list []string, ready bool) {
	if len(rows) == 1 {
		return []string{rows[0].Topic}, rows[0].Stage == driver.Ready
	}
	var topics storekit.TopicSet
	for i := range rows {
		if rows[i].Stage == driver.Ready {
			topics.Add(rows[i].Topic)
			ready = true
		}
	}
	return topics.Take(), ready
}

// retract has the next append notify in place of this one, if that was to notify and has written nothing.
func (t *tx) retract() {
	if t.notifies {
		t.d.hearing.Retract()
	}
}

// notify sends a notification in a transaction of its own. It does not wait for the disk, because other sessions could not commit
// their notifications in that time.
func (d *Driver) notify(ctx context.Context, payload string) error {
	return d.alone(ctx, false, func(t *tx) { t.add("notify", []any{d.names.channel(), payload}, nil) })
}
