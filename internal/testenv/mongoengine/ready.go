package mongoengine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill/internal/testenv/proc"
)

// makeReady makes a started server ready for tests. It returns an error as long as the
// server is not ready.
func (e *Engine) makeReady(ctx context.Context) error {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(e.port))
	if err := dial(ctx, address); err != nil {
		return err
	}
	opts := options.Client().SetHosts([]string{address}).SetDirect(true)
	return ask(ctx, opts, func(ctx context.Context, admin *mongo.Database) error {
		if err := e.checkPid(ctx, admin); err != nil {
			return err
		}
		if err := e.becomePrimary(ctx, admin); err != nil {
			return err
		}
		for _, parameter := range e.parameters {
			if err := run(ctx, admin, bson.D{{Key: "setParameter", Value: 1}, parameter}); err != nil && !wantsLogin(err) {
				return err
			}
		}
		return nil
	})
}

// dial checks whether the server listens, because the driver waits half a second before it
// tries again.
func dial(ctx context.Context, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// wantsLogin reports a server with --keyFile, which answers only clients that have logged in.
func wantsLogin(err error) bool {
	var refused mongo.CommandError
	return errors.As(err, &refused) && refused.Code == 13
}

// checkPid returns an error if another server has taken the port.
func (e *Engine) checkPid(ctx context.Context, admin *mongo.Database) error {
	pid, err := proc.ReadPid(e.PidFile())
	if err != nil {
		return err
	}
	var status struct{ Pid int64 }
	err = admin.RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status)
	if wantsLogin(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask MongoDB for its status: %w", err)
	}
	if status.Pid != int64(pid) {
		return fmt.Errorf("process %d answers at the port of process %d", status.Pid, pid)
	}
	return nil
}

func (e *Engine) becomePrimary(ctx context.Context, admin *mongo.Database) error {
	state, err := hello(ctx, admin)
	if err != nil || state.IsWritablePrimary {
		return err
	}
	if state.SetName == "" && !e.standalone() {
		member := bson.D{{Key: "_id", Value: 0}, {Key: "host", Value: net.JoinHostPort("127.0.0.1", strconv.Itoa(e.port))}}
		config := bson.D{{Key: "_id", Value: replicaSet}, {Key: "members", Value: bson.A{member}}}
		if err := run(ctx, admin, bson.D{{Key: "replSetInitiate", Value: config}}); err != nil {
			return err
		}
	}
	return errors.New("the server is not the primary yet")
}

func run(ctx context.Context, admin *mongo.Database, command bson.D) error {
	if err := admin.RunCommand(ctx, command).Err(); err != nil {
		return fmt.Errorf("%s: %w", command[0].Key, err)
	}
	return nil
}
