package testenv

import (
	"flag"
	"runtime"
	"strconv"
)

// ManyAtATime lets three parallel tests run per processor, because tests of
// stores and brokers mostly wait: for a server, a deadline, or another process.
// A -parallel on the command line stands. TestMain calls it.
func ManyAtATime() {
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if !set {
		_ = flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0)))
	}
}
