package testenv

import (
	"flag"
	"runtime"
	"strconv"
)

// ManyAtATime runs three parallel tests per processor, because tests of stores and brokers
// mostly wait for a server, a deadline, or another process. A -parallel flag on the command
// line overrides it. TestMain calls it.
func ManyAtATime() {
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if !set {
		_ = flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0)))
	}
}
