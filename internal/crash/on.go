//go:build outmill_crash && unix

package crash

import (
	"fmt"
	"os"
	"os/signal"
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
		// A thread may go on for a while after the signal.
		goesOn := make(chan os.Signal, 1)
		signal.Notify(goesOn, syscall.SIGCONT)
		fmt.Println(Stopped)
		send(syscall.SIGSTOP)
		<-goesOn
	}
}

func send(signal syscall.Signal) {
	if err := syscall.Kill(os.Getpid(), signal); err != nil {
		panic(err)
	}
}
