package proc

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// FreePort returns a port of loopback that was free a moment ago. The port is outside the
// range for outgoing connections, because these could take it while the server is down.
func FreePort() (int, error) {
	const lowest, count, tries = 15_000, 15_000, 100
	var failed error
	for range tries {
		port := lowest + rand.IntN(count)
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			failed = err
			continue
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("find a free port: %w", failed)
}
