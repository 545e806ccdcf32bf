package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// tick is the unit of the times in /proc, which Linux has fixed for programs.
const tick = time.Second / 100

// process is a line of /proc/<pid>/stat.
type process struct {
	name   string
	parent int
	// used is the processor time; ended is that of its children that have ended.
	used, ended time.Duration
}

func readProcess(pid string) (process, error) {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return process{}, err
	}
	// The name is in parentheses, and may contain parentheses itself.
	line := string(text)
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return process{}, errors.New("/proc is not as expected")
	}
	fields := strings.Fields(line[end+1:])
	const parent, user, childSystem = 1, 11, 14
	if len(fields) <= childSystem {
		return process{}, errors.New("/proc is not as expected")
	}
	p := process{name: line[open+1 : end]}
	p.parent, _ = strconv.Atoi(fields[parent])
	p.used = ticks(fields[user]) + ticks(fields[user+1])
	p.ended = ticks(fields[user+2]) + ticks(fields[childSystem])
	return p, nil
}

func ticks(field string) time.Duration {
	n, _ := strconv.ParseInt(field, 10, 64)
	return time.Duration(n) * tick
}

// ownTime is the processor time of this process.
func ownTime() (time.Duration, error) {
	p, err := readProcess("self")
	return p.used, err
}

// postmaster finds the first process of a server that runs on this machine.
func postmaster(ctx context.Context, pool *pgxpool.Pool) (int, error) {
	var pid int
	if err := pool.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return 0, err
	}
	backend, err := readProcess(strconv.Itoa(pid))
	if err != nil || backend.name != "postgres" {
		return 0, fmt.Errorf("the server does not run on this machine: %w", errors.Join(err))
	}
	return backend.parent, nil
}

// serverTime is the processor time of a server's processes, those that have
// ended too.
func serverTime(first int) (time.Duration, error) {
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, dir := range all {
		pid := filepath.Base(dir)
		// Processes end at any time.
		p, err := readProcess(pid)
		if err != nil {
			continue
		}
		if pid == strconv.Itoa(first) {
			sum += p.used + p.ended
		} else if p.parent == first {
			sum += p.used
		}
	}
	return sum, nil
}
