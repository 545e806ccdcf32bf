package sqlserver_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestOpen_Budget(t *testing.T) {
	t.Parallel()

	t.Run("the stores of several databases take their connections from the budget", func(t *testing.T) {
		t.Parallel()
		// No server is needed to count connections: this one accepts them and says nothing.
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		accepted := make(chan net.Conn, 10)
		var work sync.WaitGroup
		work.Go(func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				accepted <- conn
			}
		})
		budget := storekit.NewConnectionBudget(2, time.Minute, "the setting")
		ctx, cancel := context.WithCancel(budget.Context(t.Context()))
		for range 4 {
			work.Go(func() {
				_, err := outmill.Open(ctx, "sqlserver://user:secret@"+listener.Addr().String()+"?database=orders&encrypt=disable", nil)
				if err == nil {
					t.Error("nobody has answered")
				}
			})
		}
		require.Eventually(t, func() bool {
			open, waiting := budget.Use()
			return open == 2 && waiting == 2
		}, time.Minute, time.Millisecond)
		// The server hangs up on two, so the others have their turn.
		require.NoError(t, (<-accepted).Close())
		require.NoError(t, (<-accepted).Close())
		third, fourth := <-accepted, <-accepted
		open, waiting := budget.Use()
		require.Equal(t, []int{2, 0}, []int{open, waiting})
		require.NoError(t, third.Close())
		require.NoError(t, fourth.Close())
		cancel()
		require.NoError(t, listener.Close())
		work.Wait()
		require.Eventually(t, func() bool { open, _ := budget.Use(); return open == 0 }, time.Minute, time.Millisecond)
	})
}
