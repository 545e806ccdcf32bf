package dashboard

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

const (
	// triesLast is how long a wrong token counts.
	triesLast = time.Minute
	// maxTries is the most wrong tokens of one address, and maxAllTries of all addresses together. From
	// then on every login is refused, also one with the right token, because an attacker would learn
	// from the difference. People who are logged in notice nothing.
	maxTries    = 10
	maxAllTries = 100
)

// tries are the wrong tokens of the last minute, the oldest first: maxAllTries at most.
type tries struct {
	mu    sync.Mutex
	wrong []try
}

type try struct {
	address string
	at      time.Time
}

// check compares a token, unless too many were wrong. wait is the time until the next one is compared.
func (t *tries) check(address string, now time.Time, accepts func() bool) (right bool, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.wrong) > 0 && now.Sub(t.wrong[0].at) >= triesLast {
		t.wrong = t.wrong[1:]
	}
	var own []time.Time
	for _, w := range t.wrong {
		if w.address == address {
			own = append(own, w.at)
		}
	}
	if len(own) >= maxTries {
		wait = own[len(own)-maxTries].Add(triesLast).Sub(now)
	}
	if len(t.wrong) >= maxAllTries {
		wait = max(wait, t.wrong[0].at.Add(triesLast).Sub(now))
	}
	if wait > 0 {
		return false, wait
	}
	if accepts() {
		return true, 0
	}
	t.wrong = append(t.wrong, try{address, now})
	return false, 0
}

// addressOf is where the request comes from: an IPv4 address, or the network of an IPv6 address,
// because one machine has all addresses of a network.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	address = address.Unmap().WithZone("")
	if network, err := address.Prefix(64); err == nil && address.Is6() {
		return network.String()
	}
	return address.String()
}

// maxLoginLines is the most lines about logins in the log within a second.
const maxLoginLines = 10

// loginLines counts the lines of a second.
type loginLines struct {
	mu     sync.Mutex
	second time.Time
	lines  int
	left   int
}

// next reports whether a line may be written now, and how many were left out before it.
func (l *loginLines) next(now time.Time) (left int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.second) >= time.Second {
		l.second, l.lines = now, 0
	}
	if l.lines >= maxLoginLines {
		l.left++
		return 0, false
	}
	l.lines++
	left, l.left = l.left, 0
	return left, true
}

// noteLogin logs a login or a failed one, without the token.
func (c *call) noteLogin(text, address, user string) {
	left, ok := c.loginLines.next(time.Now())
	if !ok {
		return
	}
	fields := watermill.LogFields{"address": address}
	if user != "" {
		fields["user"] = cut(user, maxUserName)
	}
	if left > 0 {
		fields["lines_left_out"] = left
	}
	c.log.Info(text, fields)
}

// maxStreamsOfLogin is the most streams of live updates that one login may hold.
const maxStreamsOfLogin = 10

// holders counts the streams of each login.
type holders struct {
	mu   sync.Mutex
	held map[string]int
}

// take counts a stream of the login, and reports whether it may have one more.
func (h *holders) take(login string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held[login] >= maxStreamsOfLogin {
		return false
	}
	if h.held == nil {
		h.held = map[string]int{}
	}
	h.held[login]++
	return true
}

func (h *holders) give(login string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held[login]--; h.held[login] == 0 {
		delete(h.held, login)
	}
}
