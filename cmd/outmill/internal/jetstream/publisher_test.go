package jetstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/proc"
	"github.com/outmill/outmill/storekit"
)

func TestMain(m *testing.M) {
	// NATS keeps this goroutine for the life of the process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.(*AccessTimeService).run"),
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server/ats.init.0.func1"))
}

// startServer starts a NATS with JetStream in this process. port 0 is any.
func startServer(t *testing.T, dir string, port int) *server.Server {
	t.Helper()
	if port == 0 {
		port = server.RANDOM_PORT
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true, MaxPayload: 64 << 10,
	})
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	require.True(t, s.ReadyForConnections(time.Minute))
	return s
}

type rig struct {
	server *server.Server
	pub    *Publisher
	js     jetstream.JetStream
}

// newRig has a server with the stream "orders" for the subjects orders.>.
func newRig(t *testing.T) rig {
	t.Helper()
	r := rig{server: startServer(t, t.TempDir(), 0)}
	conn, err := nats.Connect(r.server.ClientURL())
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	r.js, err = jetstream.New(conn)
	require.NoError(t, err)
	r.stream(t, "orders", "orders.>")
	r.pub, err = Connect(r.server.ClientURL())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.pub.Close()) })
	return r
}

func (r rig) stream(t *testing.T, name string, subjects ...string) {
	t.Helper()
	_, err := r.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: subjects})
	require.NoError(t, err)
}

// stored returns the messages of the stream in their order.
func (r rig) stored(t *testing.T, stream string) []*jetstream.RawStreamMsg {
	t.Helper()
	s, err := r.js.Stream(t.Context(), stream)
	require.NoError(t, err)
	info, err := s.Info(t.Context())
	require.NoError(t, err)
	var all []*jetstream.RawStreamMsg
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		msg, err := s.GetMsg(t.Context(), seq)
		require.NoError(t, err)
		all = append(all, msg)
	}
	return all
}

func out(topic, id, key string) storekit.Outgoing {
	msg := message.NewMessage(id, []byte("payload of "+id))
	if key != "" {
		outmill.SetKey(msg, key)
	}
	return storekit.Outgoing{Topic: topic, Message: msg}
}

// handled is a source of the delivery with this id.
type handled outmill.WorkItemID

func (h handled) Delivery() outmill.DeliveryInfo {
	return outmill.DeliveryInfo{ID: outmill.WorkItemID(h)}
}

func (handled) LeaseUntil() time.Time { return time.Time{} }

func TestPublisher(t *testing.T) {
	t.Parallel()

	t.Run("a message arrives on the subject of its topic, with its metadata as headers", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		o := out("orders.placed", "m1", "k1")
		o.Message.Metadata.Set("name", "order.placed")
		require.NoError(t, r.pub.Publish(o.Topic, o.Message))
		stored := r.stored(t, "orders")
		require.Len(t, stored, 1)
		require.Equal(t, "orders.placed", stored[0].Subject)
		require.Equal(t, "payload of m1", string(stored[0].Data))
		for name, want := range map[string]string{storekit.HeaderUUID: "m1", "name": "order.placed", outmill.MetadataKey: "k1"} {
			require.Equal(t, want, stored[0].Header.Get(name), name)
		}
	})

	t.Run("a record that is sent again is stored once, and two records of one message twice", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		send := func(topic string, id outmill.WorkItemID) {
			o := out(topic, "m1", "")
			o.Message.SetContext(outmill.WithDelivery(t.Context(), handled(id)))
			require.NoError(t, r.pub.PublishBatch(t.Context(), []storekit.Outgoing{o}))
		}
		first, second := outmill.NewWorkItemID(), outmill.NewWorkItemID()
		send("orders.a", first)
		send("orders.a", first)
		send("orders.b", second)
		send("orders.a", outmill.NewWorkItemID())
		require.Len(t, r.stored(t, "orders"), 3)
	})

	t.Run("messages of a key arrive in the order of the call", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		var batch []storekit.Outgoing
		want := map[string][]string{}
		for i := range 300 {
			key := fmt.Sprintf("k%d", i%7)
			id := fmt.Sprintf("m%03d", i)
			batch = append(batch, out("orders.placed", id, key))
			want[key] = append(want[key], id)
		}
		require.NoError(t, r.pub.PublishBatch(t.Context(), batch))
		got := map[string][]string{}
		for _, msg := range r.stored(t, "orders") {
			key := msg.Header.Get(outmill.MetadataKey)
			got[key] = append(got[key], msg.Header.Get(storekit.HeaderUUID))
		}
		require.Equal(t, want, got)
	})

	t.Run("a subject without a stream is an unavailable topic, and the others are delivered", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		err := r.pub.PublishBatch(t.Context(), []storekit.Outgoing{
			out("orders.a", "m1", ""), out("nowhere", "m2", "k"), out("nowhere", "m3", "k"), out("orders.a", "m4", ""),
		})
		var failed *storekit.PublishError
		require.ErrorAs(t, err, &failed)
		require.Len(t, failed.Failed, 2)
		for i, f := range failed.Failed {
			require.Equal(t, i+1, f.Index)
			require.ErrorIs(t, f.Err, outmill.ErrTopicUnavailable)
			require.ErrorContains(t, f.Err, "create a stream")
		}
		require.Len(t, r.stored(t, "orders"), 2)
	})

	t.Run("what NATS cannot carry fails for ever, alone", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		large := out("orders.a", "large", "k")
		large.Message.Payload = make([]byte, 65<<10)
		badName, badValue := out("orders.a", "name", ""), out("orders.a", "value", "")
		badName.Message.Metadata.Set("a b", "c")
		badValue.Message.Metadata.Set("a", "b\nc")
		batch := []storekit.Outgoing{
			large, badName, badValue, out("orders.*", "wild", ""), out("orders..a", "empty", ""), out("orders a", "blank", ""),
			out("orders.a", "good", "k"),
		}
		var failed *storekit.PublishError
		require.ErrorAs(t, r.pub.PublishBatch(t.Context(), batch), &failed)
		require.Len(t, failed.Failed, 6)
		for _, f := range failed.Failed {
			require.True(t, outmill.IsPermanent(f.Err), "%s: %v", f.MessageID, f.Err)
		}
		stored := r.stored(t, "orders")
		require.Len(t, stored, 1)
		require.Equal(t, "good", stored[0].Header.Get(storekit.HeaderUUID))
	})

	t.Run("the largest message is that of the server, once there was a connection", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		require.NoError(t, r.pub.Ping(t.Context()))
		var limited storekit.SizeLimited = r.pub
		require.Equal(t, 64<<10, limited.MaxMessageBytes())
		away, err := Connect("nats://127.0.0.1:1")
		require.NoError(t, err)
		defer func() { require.NoError(t, away.Close()) }()
		require.Zero(t, away.MaxMessageBytes())
	})

	t.Run("a stream that is full makes its topic unavailable", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		_, err := r.js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name: "full", Subjects: []string{"full"}, MaxMsgs: 1, Discard: jetstream.DiscardNew,
		})
		require.NoError(t, err)
		require.NoError(t, r.pub.Publish("full", out("", "m1", "").Message))
		require.ErrorIs(t, r.pub.Publish("full", out("", "m2", "").Message), outmill.ErrTopicUnavailable)
	})

	t.Run("metadata that mean something to NATS are sent under an escaped name, and come back", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		_, err := r.js.UpdateStream(t.Context(), jetstream.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}, AllowRollup: true})
		require.NoError(t, err)
		for i := range 5 {
			require.NoError(t, r.pub.Publish("orders.history", out("", fmt.Sprint(i), "").Message))
		}
		evil := map[string]string{
			"Nats-Rollup": "all", "nats-rollup": "all", "Nats-Expected-Stream": "other", "Nats-Msg-Id": "taken", "Nats-TTL": "x",
			"Nats-Expected-Last-Msg-Id": "x", "Nats-Expected-Last-Sequence": "77", "Status": "503", "outmill-escaped-Nats-Rollup": "sub",
			storekit.HeaderUUID: "spoofed", "Natural": "stays",
		}
		o := out("orders.history", "evil", "")
		o.Message.Payload = nil
		o.Message.Metadata = maps.Clone(evil)
		outmill.SetDelay(o.Message, time.Hour)
		require.NoError(t, r.pub.Publish(o.Topic, o.Message))
		stored := r.stored(t, "orders")
		require.Len(t, stored, 6)
		got := message.NewMessage("", nil)
		for name := range stored[5].Header {
			got.Metadata[name] = stored[5].Header.Get(name)
		}
		require.Equal(t, "evil", got.Metadata[storekit.HeaderUUID])
		require.Equal(t, "stays", got.Metadata["Natural"])
		require.Equal(t, "all", got.Metadata["outmill-escaped-Nats-Rollup"])
		require.NotContains(t, got.Metadata, "Nats-Rollup")
		require.NotContains(t, got.Metadata, "outmill_delay")
		// As a reader of Watermill takes them off.
		delete(got.Metadata, storekit.HeaderUUID)
		delete(got.Metadata, "Nats-Msg-Id")
		storekit.RestoreHeaders(got)
		require.Equal(t, message.Metadata(evil), got.Metadata)
	})

	t.Run("an answer about one message is that message's, and one about the stream is the topic's", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		_, err := r.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "small", Subjects: []string{"small"}, MaxMsgSize: 200})
		require.NoError(t, err)
		large := out("small", "large", "k")
		large.Message.Payload = make([]byte, 300)
		var failed *storekit.PublishError
		require.ErrorAs(t, r.pub.PublishBatch(t.Context(), []storekit.Outgoing{large, out("small", "good", "k")}), &failed)
		require.Len(t, failed.Failed, 1)
		require.True(t, outmill.IsPermanent(failed.Failed[0].Err))
		require.NotErrorIs(t, failed.Failed[0].Err, outmill.ErrTopicUnavailable)
		require.Len(t, r.stored(t, "small"), 1)
		for code, ofTopic := range map[jetstream.ErrorCode]bool{
			10054: false, 10060: false, 10070: false, 10071: false, 10097: false, 10111: false, 10164: false, 10165: false,
			10077: true, 10109: true, 10047: true,
		} {
			err := explain("orders", fmt.Errorf("publish: %w", &jetstream.APIError{Code: 400, ErrorCode: code}))
			require.Equal(t, ofTopic, errors.Is(err, outmill.ErrTopicUnavailable), code)
			require.NotErrorIs(t, err, outmill.ErrBrokerUnavailable)
		}
	})

	t.Run("without a server nothing is lost and nothing goes dead, and the client comes back", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		port, err := proc.FreePort()
		require.NoError(t, err)
		first := startServer(t, dir, port)
		conn, err := nats.Connect(first.ClientURL())
		require.NoError(t, err)
		js, err := jetstream.New(conn)
		require.NoError(t, err)
		_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}})
		require.NoError(t, err)
		conn.Close()
		pub, err := Connect(first.ClientURL(), nats.ReconnectWait(10*time.Millisecond))
		require.NoError(t, err)
		defer func() { require.NoError(t, pub.Close()) }()
		require.NoError(t, pub.Ping(t.Context()))
		first.Shutdown()
		first.WaitForShutdown()

		require.Eventually(t, func() bool { return pub.Ping(t.Context()) != nil }, time.Minute, 10*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		err = pub.PublishBatch(ctx, []storekit.Outgoing{out("orders.a", "m1", "")})
		require.Error(t, err)
		require.False(t, outmill.IsPermanent(err))
		require.NotErrorIs(t, err, outmill.ErrTopicUnavailable)

		startServer(t, dir, port)
		require.Eventually(t, func() bool {
			return pub.PublishBatch(t.Context(), []storekit.Outgoing{out("orders.a", "m1", "")}) == nil
		}, time.Minute, 20*time.Millisecond)
	})

	t.Run("a call ends with its context, and after Close with an error", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, r.pub.PublishBatch(ctx, []storekit.Outgoing{out("orders.a", "m1", "")}), context.Canceled)
		require.NoError(t, r.pub.Close())
		require.ErrorIs(t, r.pub.Publish("orders.a", out("", "m1", "").Message), outmill.ErrClosed)
	})

	t.Run("a url is shown without its credentials", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "nats://xxxxx@a:4222,tls://xxxxx@b:4222,nats://c:4222", Redact("nats://me:S3CRET@a:4222,tls://S3CRET@b:4222,c:4222"))
	})
}
