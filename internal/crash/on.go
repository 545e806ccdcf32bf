//go:build outmill_crash && unix

package crash

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

var kills, stops = countdownOf(EnvAt), countdownOf(EnvStop)

func countdownOf(env string) *countdown {
	step, times, _ := strings.Cut(os.Getenv(env), ":")
	n, _ := strconv.Atoi(times)
	return &countdown{step: step, n: n}
}

type countdown struct {
	mu   sync.Mutex
	step string
	n    int
}

// passes counts a step, and reports whether it is the one.
func (c *countdown) passes(step string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if step != c.step {
		return false
	}
	c.n--
	return c.n == -1
}

// At kills the process if EnvAt names the step, and stops it if EnvStop does.
func At(step string) {
	if kills.passes(step) {
		send(syscall.SIGKILL)
		select {}
	}
	if stops.passes(step) {
		fmt.Println(Stopped)
		send(syscall.SIGSTOP)
	}
}

func send(signal syscall.Signal) {
	if err := syscall.Kill(os.Getpid(), signal); err != nil {
		panic(err)
	}
}
