package next

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

var (
	_ driver.Notifying = (*Driver)(nil)
	_ driver.Hearer    = (*Driver)(nil)
)

// mostNotified is a little less than PostgreSQL's limit of 8,000 bytes.
const mostNotified = 7900

// hearing is what a driver hears of other processes' commits, by LISTEN on a connection of its own, and what it has told them.
type hearing struct {
	*storekit.Hearing

	mu sync.Mutex
	// told is when this process last notified. topics are those that it has not told since.
	told   time.Time
	topics storekit.TopicSet
}

// Notifier has the hints of this process, and of those that it hears of.
func (d *Driver) Notifier() *storekit.Notifier { return &d.hearing.Notifier }

// HearsOthers reports whether the driver has a connection to listen on. See driver.Hearer.
func (d *Driver) HearsOthers() bool { return d.config.Listen != nil }

// Hear listens until ctx ends. See driver.Hearer.
func (d *Driver) Hear(ctx context.Context) {
	if d.config.Listen != nil {
		d.hearing.Hear(ctx)
	}
}

// listen passes notifications on until the connection breaks. worked says that it listened.
func (d *Driver) listen(ctx context.Context) (worked bool) {
	conn, err := d.config.Listen(ctx)
	if err != nil {
		return false
	}
	defer func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackWithin)
		defer cancel()
		_ = conn.Close(within)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{d.names.channel()}.Sanitize(), pgx.QueryExecModeSimpleProtocol); err != nil {
		return false
	}
	d.hearing.Begin()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return true
		}
		var topics []string
		// A text that cannot be read stands for any topic.
		_ = json.Unmarshal([]byte(n.Payload), &topics)
		d.hearing.Notify(topics...)
	}
}

// addNotice queues a notification of the rows that are due at once. PostgreSQL commits transactions that notify one after the other,
// so not every append notifies: its topics come with the next one behind the interval, or readers find them by polling.
func (t *tx) addNotice(rows []driver.NewRow) {
	h := &t.d.hearing
	if t.d.config.Listen == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	due := false
	for i := range rows {
		if rows[i].Stage == driver.Ready {
			h.topics.Add(rows[i].Topic)
			due = true
		}
	}
	if !due || time.Since(h.told) < t.d.config.NotifyInterval {
		return
	}
	topics := h.topics.Take()
	// Strings always marshal.
	text, _ := json.Marshal(topics)
	if len(topics) == 0 || len(text) > mostNotified {
		text = nil
	}
	h.told = time.Now()
	t.add("notify", []any{t.d.names.channel(), string(text)}, nil)
}

// untold has the next notice not wait for the interval.
func (h *hearing) untold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = time.Time{}
}
