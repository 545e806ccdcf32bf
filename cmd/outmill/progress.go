package main

import (
	"fmt"
	"io"
	"time"
)

// progress shows on standard error how far a command came: on a terminal one line that
// changes, elsewhere a line every few seconds.
type progress struct {
	w     io.Writer
	verb  string
	total int
	began time.Time
	last  time.Time
	every time.Duration
	live  bool
	shown bool
}

// newProgress makes a progress. total is about how much there is; 0 is unknown. The first
// line appears after a moment, so that a quick command shows none.
func newProgress(w io.Writer, verb string, total int) *progress {
	p := &progress{w: w, verb: verb, total: total, began: time.Now(), every: 2 * time.Second, live: isTerminal(w)}
	if p.live {
		p.every = 200 * time.Millisecond
	}
	p.last = p.began
	return p
}

// show says that n records are done.
func (p *progress) show(n int) {
	if now := time.Now(); now.Sub(p.last) >= p.every {
		p.last = now
		p.line(n, now)
	}
}

func (p *progress) line(n int, now time.Time) {
	text := fmt.Sprintf("%s %d", p.verb, n)
	if p.total > 0 {
		text += fmt.Sprintf(" of about %d", p.total)
	}
	if elapsed := now.Sub(p.began).Seconds(); elapsed > 0 {
		text += fmt.Sprintf(", %.0f/s", float64(n)/elapsed)
	}
	p.shown = true
	if p.live {
		fmt.Fprintf(p.w, "\r\x1b[K%s", text)
		return
	}
	fmt.Fprintln(p.w, text)
}

// end removes the line that changes.
func (p *progress) end() {
	if p.shown && p.live {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
