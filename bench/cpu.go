package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cpuUse is the processor time of this process, of PostgreSQL, and of the Kafka that it uses. What cannot be read is 0.
type cpuUse struct{ own, postgres, kafka time.Duration }

func (b *bench) cpuUse() (use cpuUse) {
	use.own, _ = ownTime()
	if b.postmaster > 0 {
		use.postgres, _ = serverTime(b.postmaster)
	}
	if b.engines.kafkaAddr == "" {
		return use
	}
	if b.broker == "" {
		b.broker = listener(b.engines.kafkaAddr)
	}
	if p, err := readProcess(b.broker); err == nil {
		use.kafka = p.used
	}
	return use
}

// listener finds the process of this machine that listens at an address; "" is that it finds none.
func listener(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return ""
	}
	number, _ := strconv.Atoi(port)
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table)
		for line := range strings.Lines(string(text)) {
			// The columns are number, local and remote address, state, and others; the tenth is the socket.
			const local, state, listens, socket = 1, 3, "0A", 9
			fields := strings.Fields(line)
			if len(fields) > socket && fields[state] == listens && strings.HasSuffix(fields[local], fmt.Sprintf(":%04X", number)) {
				sockets["socket:["+fields[socket]+"]"] = true
			}
		}
	}
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && sockets[to] {
			return filepath.Base(filepath.Dir(filepath.Dir(file)))
		}
	}
	return ""
}

// since says what each process has used for each of n things.
func (u cpuUse) since(begin cpuUse, n int) string {
	var parts []string
	for _, one := range []struct {
		name string
		used time.Duration
	}{{"this process", u.own - begin.own}, {"PostgreSQL", u.postgres - begin.postgres}, {"Kafka", u.kafka - begin.kafka}} {
		if one.used > 0 {
			parts = append(parts, fmt.Sprintf("%s %.2f", one.name, float64(one.used.Nanoseconds())/1000/float64(n)))
		}
	}
	return "µs of processor each: " + strings.Join(parts, ", ")
}
