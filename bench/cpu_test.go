package main

import (
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCPUUse(t *testing.T) {
	t.Parallel()

	t.Run("counts the broker that listens at the address, not only one that the bench has started", func(t *testing.T) {
		t.Parallel()
		server, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { require.NoError(t, server.Close()) }()
		addr := server.Addr().String()
		require.Equal(t, strconv.Itoa(os.Getpid()), listener(addr))
		b := &bench{engines: engines{kafkaAddr: addr}}
		begin := b.cpuUse()
		for begin.kafka == b.cpuUse().kafka {
			// This process is the broker, and works.
		}
		require.Contains(t, b.cpuUse().since(begin, 1), "Kafka ")
	})

	t.Run("counts no broker of another machine, and none that does not listen", func(t *testing.T) {
		t.Parallel()
		server, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { require.NoError(t, server.Close()) }()
		_, port, err := net.SplitHostPort(server.Addr().String())
		require.NoError(t, err)
		require.NotEmpty(t, listener("localhost:"+port))
		require.Empty(t, listener("192.0.2.1:"+port))
		require.Empty(t, listener("127.0.0.1:0"))
		require.NotContains(t, cpuUse{}.since(cpuUse{}, 1), "Kafka")
		require.Contains(t, cpuUse{kafka: time.Millisecond}.since(cpuUse{}, 1000), "Kafka 1.00")
	})
}
