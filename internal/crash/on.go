//go:build outmill_crash

package crash

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

var left = func() *countdown {
	step, times, _ := strings.Cut(os.Getenv(EnvAt), ":")
	n, _ := strconv.Atoi(times)
	return &countdown{step: step, n: n}
}()

type countdown struct {
	mu   sync.Mutex
	step string
	n    int
}

// At kills the process if EnvAt names the step.
func At(step string) {
	left.mu.Lock()
	defer left.mu.Unlock()
	if step != left.step {
		return
	}
	if left.n--; left.n >= 0 {
		return
	}
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {}
}
