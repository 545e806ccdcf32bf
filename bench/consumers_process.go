package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	outmillmongo "github.com/outmill/outmill/mongo"
)

// consumeEnv makes a process of this program a consumer. It is not a scenario, so that the test
// binary can be a consumer, too.
const consumeEnv = "OUTMILL_BENCH_CONSUME"

// consumerOrder names the database that a process consumes from, or fills.
type consumerOrder struct {
	URL, Database  string
	Fill, Ordered  bool
	N, Batch, Size int
}

// consumerResult has the work of a consumer until its last ack. Began and Ended are Unix
// times in nanoseconds.
type consumerResult struct {
	Messages, Commands int
	Began, Ended       int64
	Claims             []time.Duration
}

const consumersGroup = "consumers"

func init() {
	text := os.Getenv(consumeEnv)
	if text == "" {
		return
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := consumerProcess(ctx, text)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(failed)
	}
	os.Exit(ok)
}

// run runs the order in a process of the program. When a consumer is ready, it calls
// ready and waits until ready returns. ready is nil for a process that fills.
func (o consumerOrder) run(ctx context.Context, program string, ready func()) (result consumerResult, err error) {
	text, err := json.Marshal(o)
	if err != nil {
		return result, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), consumeEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return result, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return result, err
	}
	if err := cmd.Start(); err != nil {
		return result, err
	}
	out := bufio.NewReader(stdout)
	if _, err = out.ReadString('\n'); err == nil {
		if ready != nil {
			ready()
			_, err = io.WriteString(stdin, "go\n")
		}
		if err == nil {
			err = json.NewDecoder(out).Decode(&result)
		}
	}
	if ended := cmd.Wait(); ended != nil {
		err = ended
	}
	return result, err
}

func consumerProcess(ctx context.Context, text string) error {
	var o consumerOrder
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	var commands atomic.Int64
	client, err := mongo.Connect(options.Client().ApplyURI(o.URL).SetMonitor(&event.CommandMonitor{
		Started: func(context.Context, *event.CommandStartedEvent) { commands.Add(1) },
	}))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	store, err := outmillmongo.New(client, outmillmongo.Config{Database: o.Database}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if o.Fill {
		return o.fill(ctx, store)
	}
	if _, err := store.Groups(ctx); err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	commands.Store(0)
	result, err := o.consume(ctx, store, &commands)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func (o consumerOrder) fill(ctx context.Context, store *outmillmongo.Store) error {
	if err := store.Ensure(ctx); err != nil {
		return err
	}
	if err := store.RegisterGroup(ctx, outmill.Registration{Group: consumersGroup}); err != nil {
		return err
	}
	for from := 0; from < o.N; from += appendAtOnce {
		list := records(storesTopic, from, min(appendAtOnce, o.N-from), o.Size, false)
		for i, r := range list {
			r.Key = fmt.Sprint("key-", from+i)
		}
		if err := store.Append(ctx, list...); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	return json.NewEncoder(os.Stdout).Encode(consumerResult{})
}

const (
	firstIdle = 10 * time.Millisecond
	lastIdle  = 100 * time.Millisecond
	// idleFor is the time without messages after which a consumer ends.
	idleFor = 2 * time.Second
)

func (o consumerOrder) consume(ctx context.Context, store *outmillmongo.Store, commands *atomic.Int64) (result consumerResult, err error) {
	request := outmill.ClaimRequest{
		Owner: outmill.NewOwnerToken(), Group: consumersGroup, Topics: outmill.Topics{Include: []string{storesTopic}}, Limit: o.Batch,
		Lease: time.Minute,
	}
	if o.Ordered {
		request.Order = outmill.OrderKey
	}
	result.Began = time.Now().UnixNano()
	idle, last := firstIdle, time.Now()
	for time.Since(last) < idleFor {
		began := time.Now()
		claimed, err := store.Claim(ctx, request)
		if err != nil {
			return result, err
		}
		if len(claimed) == 0 {
			time.Sleep(idle)
			idle = min(2*idle, lastIdle)
			continue
		}
		idle = firstIdle
		result.Claims = append(result.Claims, time.Since(began))
		leases := make([]outmill.Lease, len(claimed))
		for i, r := range claimed {
			leases[i] = r.Lease()
		}
		if err := store.Ack(ctx, "", leases); err != nil {
			return result, err
		}
		last = time.Now()
		result.Messages += len(claimed)
		result.Commands, result.Ended = int(commands.Load()), last.UnixNano()
	}
	return result, nil
}
