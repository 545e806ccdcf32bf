//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/subscriber"
)

// A child is this test binary in another process. It has a role until its standard input ends.
const (
	envRole     = "OUTMILL_CHAOS_TEST_ROLE"
	envName     = "OUTMILL_CHAOS_TEST_NAME"
	envTarget   = "OUTMILL_CHAOS_TEST_TARGET"
	envDatabase = "OUTMILL_CHAOS_TEST_DATABASE"
	envBroker   = "OUTMILL_CHAOS_TEST_BROKER"
	envTopic    = "OUTMILL_CHAOS_TEST_TOPIC"
	envJournal  = "OUTMILL_CHAOS_TEST_JOURNAL"
	envReports  = "OUTMILL_CHAOS_TEST_REPORTS"
	envDice     = "OUTMILL_CHAOS_TEST_DICE"

	roleWriter     = "writer"
	roleForwarder  = "forwarder"
	roleSubscriber = "subscriber"
	roleOperator   = "operator"
)

const (
	lease = 3 * time.Second
	// audit is the group of the subscribers.
	audit = "audit"
	// seenBy is the header that tells which process has forwarded a message.
	seenBy = "chaos_seen_by"
	// endsWithin is the longest time for a graceful stop of a child.
	endsWithin = 30 * time.Second
	// again is the pause before a child tries again to start.
	again = 100 * time.Millisecond
)

// stubborn retries for ever, because no message of this test is itself the cause of a failure.
var stubborn = outmill.RetryPolicy{MaxAttempts: -1, InitialInterval: 100 * time.Millisecond, MaxInterval: time.Second}

func play(role string) int {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		// The parent asks for the end, or has ended.
		_, _ = io.Copy(io.Discard, os.Stdin)
		time.AfterFunc(endsWithin, func() {
			// The log of a child that does not stop shows what it waits for.
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			os.Exit(3)
		})
		cancel()
	}()
	logger := watermill.NewStdLoggerWithOut(os.Stderr, false, false)
	log.SetOutput(os.Stderr)
	perform := map[string]func(context.Context, database, watermill.LoggerAdapter) error{
		roleWriter:     write,
		roleForwarder:  forward,
		roleSubscriber: handle,
		roleOperator:   operate,
	}[role]
	for ctx.Err() == nil {
		// The database may be unavailable.
		if err := withDatabase(ctx, logger, perform); err != nil {
			logger.Error("Cannot begin, will try again", err, nil)
			_ = storekit.Pause(ctx, again)
		}
	}
	return 0
}

func withDatabase(ctx context.Context, logger watermill.LoggerAdapter,
	perform func(context.Context, database, watermill.LoggerAdapter) error) error {
	db, err := ownTarget().connect(ctx, os.Getenv(envDatabase), logger)
	if err != nil {
		return err
	}
	defer db.close()
	return perform(ctx, db, logger)
}

func forward(ctx context.Context, db database, logger watermill.LoggerAdapter) error {
	pub, err := kafka.NewPublisher(kafka.Config{Brokers: []string{os.Getenv(envBroker)}}, logger)
	if err != nil {
		return err
	}
	defer pub.Close()
	config := forwarder.Config{
		Topics:          outmill.Topics{Include: []string{os.Getenv(envTopic)}},
		BatchSize:       50,
		Lease:           lease,
		PollInterval:    ownTarget().poll,
		MaxErrorBackoff: time.Second,
		UpkeepInterval:  2 * time.Second,
		Retry:           stubborn,
	}
	if rand.IntN(2) == 0 {
		// With a hook, records are published as messages.
		config.Transform = func(_ string, msg *message.Message) (*message.Message, error) {
			msg.Metadata.Set(seenBy, os.Getenv(envName))
			return msg, nil
		}
	}
	fwd, err := forwarder.New(db.outbox(), dawdler{pub}, config, logger)
	if err != nil {
		return err
	}
	return fwd.Run(ctx)
}

// dawdler sometimes waits before and after it publishes, so that most processes are killed in
// the middle of a publish.
type dawdler struct{ *kafka.Publisher }

func (d dawdler) PublishBatch(ctx context.Context, batch []storekit.Outgoing) error {
	dawdle()
	defer dawdle()
	return d.Publisher.PublishBatch(ctx, batch)
}

// PublishesRaw marks the records as the hook marks messages.
func (d dawdler) PublishesRaw(message.Publisher) func(ctx context.Context, batch []roles.RawRecord) error {
	publish := d.Publisher.PublishesRaw(d.Publisher)
	return func(ctx context.Context, batch []roles.RawRecord) error {
		dawdle()
		defer dawdle()
		marked := make([]roles.RawRecord, len(batch))
		for i, r := range batch {
			marked[i] = roles.RawRecord{Record: r.Record, Entries: append(slices.Clone(r.Entries), roles.MetadataEntry{
				Name: seenBy, Value: os.Getenv(envName),
			})}
		}
		return publish(ctx, marked)
	}
}

func dawdle() {
	switch dice := rand.IntN(400); {
	case dice == 0:
		time.Sleep(lease * 3 / 2)
	case dice < 80:
		time.Sleep(rand.N(200 * time.Millisecond))
	}
}

// reading is the configuration of the subscribers of a group.
func reading(group string, order outmill.Order) subscriber.Config {
	return subscriber.Config{
		Group:           group,
		Order:           order,
		BatchSize:       20,
		MaxInFlight:     20,
		Lease:           lease,
		PollInterval:    ownTarget().poll,
		MaxErrorBackoff: time.Second,
		UpkeepInterval:  2 * time.Second,
		Retry:           stubborn,
	}
}

func handle(ctx context.Context, db database, logger watermill.LoggerAdapter) error {
	journal, err := os.OpenFile(os.Getenv(envJournal), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer journal.Close()
	sub, err := subscriber.New(db.outbox(), reading(audit, outmill.OrderKey), logger)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: endsWithin}, logger)
	if err != nil {
		return err
	}
	router.AddMiddleware(subscriber.KeepError)
	router.AddConsumerHandler("audit", os.Getenv(envTopic), sub, func(msg *message.Message) error { return note(journal, msg) })
	router.AddConsumerHandler(doomed, doomed, sub, func(*message.Message) error { return outmill.Permanent(errMoody) })
	if _, err := joins.AddHandlers(router, sub, joins.Config{Store: db.outbox()}); err != nil {
		return err
	}
	ofDesk, err := addDesk(router, db, logger)
	if ofDesk != nil {
		defer ofDesk.Close()
	}
	if err != nil {
		return err
	}
	if err := addEffects(router, db, os.Getenv(envTopic), logger); err != nil {
		return err
	}
	return router.Run(ctx)
}

var errMoody = errors.New("the handler does not feel like it")

// moody runs a handler. Sometimes it waits, rarely longer than the lease, or fails, before or after the handler.
func moody(handle func() error) error {
	mood := rand.IntN(2000)
	switch {
	case mood == 0:
		// It continues when its context ends, like a handler that ignores its context.
		time.Sleep(lease * 3 / 2)
	case mood < 20:
		time.Sleep(rand.N(200 * time.Millisecond))
	case mood < 200:
		time.Sleep(rand.N(5 * time.Millisecond))
	case mood < 220:
		return errMoody
	}
	if err := handle(); err != nil {
		return err
	}
	if mood >= 220 && mood < 240 {
		return errMoody
	}
	return nil
}

// note is the handler. It writes each message to the journal. All processes append to this
// file, so the order of its lines is the order of the sightings, and a line survives the death
// of its writer.
func note(journal io.Writer, msg *message.Message) error {
	return moody(func() error {
		info, _ := outmill.Delivery(msg.Context())
		by := fmt.Sprintf("%s:claim-%d:%s", os.Getenv(envName), info.Claims, time.Now().UTC().Format("15:04:05.000000"))
		_, err := fmt.Fprintf(journal, "%s %s %s %s\n", msg.UUID, info.Key, msg.Payload, by)
		return err
	})
}
