package kafka_test

import (
	"fmt"
	"testing"
	"time"
	"strconv"

	"github.com/ThreeDotsLabs/watermill"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/kafka"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"os"
	"bytes"
	"math/rand/v2"
)

func Test_dbg(t *testing.T) {
	for try := range 20000 {
		var fs []*kerr.Error
		for range rand.IntN(4) { fs = append(fs, brokerFaults[rand.IntN(len(brokerFaults))]) }
		cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(2, "topic"))
		require.NoError(t, err)
		var buf bytes.Buffer
		_ = buf
		logger := watermill.NewCaptureLogger()
		pub, err := kafka.NewPublisher(wkafka.PublisherConfig{Brokers: cluster.ListenAddrs()}, kafka.Config{DeliveryTimeout: 300*time.Millisecond, MaxMessageBytes: 1500, MaxBufferedRecords: 7}, logger)
		require.NoError(t, err)
		inject(cluster, fs)
		var left []outmill.Outgoing
		for i := range 12 {
			left = append(left, outgoing("topic", keyedMessage(strconv.Itoa(i%2), strconv.Itoa(i/2)))...)
		}
		n := len(left)
		var errs []string
		dead := 0
		for len(left) > 0 {
			err := pub.PublishBatch(t.Context(), left)
			errs = append(errs, fmt.Sprint(err))
			var l []outmill.Outgoing
			if err != nil {
				for _, f := range failedMessages(t, err) { if outmill.IsPermanent(f.Err) { dead++ } else { l = append(l, left[f.Index]) } }
			}
			left = l
		}
		got := testenv.ReadAll(t, cluster.ListenAddrs(), "topic")
		seen := map[string]bool{}
		for _, r := range got { seen[string(r.Key)+string(r.Value)] = true }
		pub.Close()
		cluster.Close()
		if len(seen)+dead < n {
			var names []string
			for _, f := range fs { if f == nil { names = append(names, "nil") } else { names = append(names, f.Message) } }
			t.Log(try, names)
			for _, r := range got { t.Log(r.Partition, r.Offset, string(r.Key), string(r.Value), r.ProducerID, r.ProducerEpoch) }
			t.Log(errs)
			f, _ := os.Create("/tmp/dbg.log")
			logger.PrintCaptured(lw{f})
			f.Close()
			return
		}
	}
}
type lw struct { f *os.File }
func (l lw) Logf(s string, a ...any) { fmt.Fprintf(l.f, s+"\n", a...) }
