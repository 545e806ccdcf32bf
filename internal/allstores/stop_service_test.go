package allstores

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/storetest/memstore"
	"github.com/outmill/outmill/subscriber"
)

// envStopped names the environment variable that makes this binary a stopped service. It has the
// URL of the store, the kind of service, the way to stop, and the topic, separated by blanks.
const envStopped = "OUTMILL_STOP_TEST"

// inMemory is the URL of a store in the memory of the service's process.
const inMemory = "memory:"

// kinds are the kinds of services. A program like the README's has one message, whose handler stops
// it. A busy service has many, whose handlers take 20 ms. A CQRS service makes its subscribers in
// the processor, so it cannot close them.
const (
	likeTheReadme = "README"
	busy          = "busy"
	ofCQRS        = "CQRS"
)

// ways are the ways to stop a service.
const (
	bySignal  = "SIGTERM"
	byClose   = "router.Close"
	byContext = "context"
	byExit    = "os.Exit"
)

const (
	busyMessages = 80
	// enough is the number of handlings that have begun when a busy service stops.
	enough = 25
)

// stoppedService is a service that stops while its handlers run.
type stoppedService struct {
	store            outmill.Store
	kind, way, topic string
	// tell gets the id of each message whose handler is about to return.
	tell func(id string)
	stop func()
	// began counts the handlings.
	began atomic.Int64
}

// run publishes, handles, and returns when the router's Run has returned.
func (s *stoppedService) run(ctx context.Context) error {
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.stop = cancel; s.way == byClose {
		s.stop = func() { go func() { _ = router.Close() }() }
	}
	if s.way == bySignal {
		var end func()
		ctx, end = signal.NotifyContext(ctx, syscall.SIGTERM)
		defer end()
		s.stop = func() { _ = syscall.Kill(os.Getpid(), syscall.SIGTERM) }
	}
	router.AddMiddleware(subscriber.KeepError)
	if s.kind == ofCQRS {
		err = s.addProcessor(router)
	} else {
		err = s.addHandler(router)
	}
	if err == nil {
		err = s.publish()
	}
	if err != nil {
		return err
	}
	return router.Run(ctx)
}

func (s *stoppedService) subscriber() (*subscriber.Subscriber, error) {
	sub, err := subscriber.New(s.store, subscriber.Config{Group: s.topic}, nil)
	if err == nil {
		err = sub.SubscribeInitialize(s.topic)
	}
	return sub, err
}

func (s *stoppedService) addHandler(router *message.Router) error {
	sub, err := s.subscriber()
	if err != nil {
		return err
	}
	router.AddConsumerHandler("bill", s.topic, sub, func(msg *message.Message) error {
		s.handle(msg.UUID)
		return nil
	})
	return nil
}

// placed is an event.
type placed struct{ ID string }

func (s *stoppedService) addProcessor(router *message.Router) error {
	processor, err := cqrs.NewEventProcessorWithConfig(router, cqrs.EventProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) { return s.topic, nil },
		SubscriberConstructor: func(cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return s.subscriber()
		},
		Marshaler: cqrs.JSONMarshaler{GenerateName: cqrs.StructName},
	})
	if err != nil {
		return err
	}
	return processor.AddHandlers(cqrs.NewEventHandler("bill", func(ctx context.Context, _ *placed) error {
		s.handle(cqrs.OriginalMessageFromCtx(ctx).UUID)
		return nil
	}))
}

// handle is the service's handler.
func (s *stoppedService) handle(id string) {
	began := int(s.began.Add(1))
	if s.kind == likeTheReadme {
		s.tell(id)
		s.stop()
		return
	}
	if began == enough {
		s.stop()
	}
	<-time.After(20 * time.Millisecond)
	s.tell(id)
}

func (s *stoppedService) publish() error {
	pub, err := publisher.New(s.store, publisher.Config{}, nil)
	if err != nil {
		return err
	}
	switch s.kind {
	case ofCQRS:
		bus, err := cqrs.NewEventBusWithConfig(pub, cqrs.EventBusConfig{
			GeneratePublishTopic: func(cqrs.GenerateEventPublishTopicParams) (string, error) { return s.topic, nil },
			Marshaler:            cqrs.JSONMarshaler{GenerateName: cqrs.StructName},
		})
		for i := 0; i < busyMessages && err == nil; i++ {
			err = bus.Publish(context.Background(), &placed{fmt.Sprint(i)})
		}
		return err
	case busy:
		orders := make([]*message.Message, busyMessages)
		for i := range orders {
			orders[i] = message.NewMessage(watermill.NewUUID(), []byte("order"))
		}
		return pub.Publish(s.topic, orders...)
	default:
		return pub.Publish(s.topic, message.NewMessage(watermill.NewUUID(), []byte("order")))
	}
}

// playStopped is the main of a child process.
func playStopped(task string) int {
	if err := stopAsTold(strings.Fields(task)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	return 0
}

func stopAsTold(task []string) error {
	ctx, address, way := context.Background(), task[0], task[2]
	open := func() (outmill.Store, error) { return outmill.Open(ctx, address, nil) }
	if address == inMemory {
		database := memstore.NewDatabase()
		open = func() (outmill.Store, error) { return memstore.New(database, memstore.Options{}), nil }
	}
	store, err := open()
	if err != nil {
		return err
	}
	if address == inMemory {
		if err := store.Ensure(ctx); err != nil {
			return err
		}
	}
	service := &stoppedService{store: store, kind: task[1], way: way, topic: task[3], tell: func(id string) { fmt.Println("handled", id) }}
	if err := service.run(ctx); err != nil {
		return err
	}
	if way == byExit && address != inMemory {
		os.Exit(0)
	}
	if way != byExit {
		if err := store.Close(); err != nil {
			return err
		}
	}
	if address != inMemory {
		return nil
	}
	// The records do not outlive this process.
	other, err := open()
	if err != nil {
		return err
	}
	left, err := other.List(ctx, outmill.ListQuery{Content: true, Limit: 1000})
	for _, rec := range left {
		fmt.Println("left", rec.MessageID, rec.Status)
	}
	return err
}

// stopped is what became of a service's messages.
type stopped struct {
	handled map[string]int
	// leased are the messages that the service has not given back.
	left, leased map[string]bool
}

// stopOnce runs a service in a process of its own until it stops.
func stopOnce(t *testing.T, address, kind, way, topic string, store outmill.Store) stopped {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), envStopped+"="+strings.Join([]string{address, kind, way, topic}, " "))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	result := stopped{handled: map[string]int{}, left: map[string]bool{}, leased: map[string]bool{}}
	result.read(out)
	require.NoError(t, child.Wait())
	if address == inMemory {
		return result
	}
	left, err := store.List(t.Context(), outmill.ListQuery{Content: true, Topic: topic, Limit: 1000})
	require.NoError(t, err)
	for _, rec := range left {
		result.add(rec.MessageID, rec.Status == outmill.StatusLeased)
	}
	return result
}

func (s *stopped) read(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch words := strings.Fields(lines.Text()); words[0] {
		case "handled":
			s.handled[words[1]]++
		case "left":
			s.add(words[1], words[2] == string(outmill.StatusLeased))
		}
	}
}

func (s *stopped) add(id string, leased bool) {
	s.left[id] = true
	if leased {
		s.leased[id] = true
	}
}

// again are the messages that were handled and come again.
func (s *stopped) again() (ids []string) {
	for id := range s.handled {
		if s.left[id] {
			ids = append(ids, id)
		}
	}
	return ids
}
