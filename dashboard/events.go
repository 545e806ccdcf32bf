package dashboard

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"time"
)

const (
	// heartbeat is the time after which a stream without news writes a comment, so that proxies
	// keep it and a client that is gone is noticed.
	heartbeat = 15 * time.Second
	// usualWriteTimeout ends a stream whose client reads nothing.
	usualWriteTimeout = 10 * time.Second
)

// liveData returns the data of a page that is live.
func (c *call) liveData(name string) (any, bool) {
	query := c.r.URL.Query()
	switch name {
	case "overview":
		return c.overview(c.ctx, query.Get("q")), true
	case "topic":
		return c.topic(c.ctx, query.Get("group"), query.Get("topic")), true
	case "stores":
		return c.stores(c.ctx, query.Get("q")), true
	}
	return nil, false
}

// events is the stream of a page: its block "live" whenever that changes, as server-sent events.
// It ends with the request, with the login, or with Close.
func events(c *call) error {
	name := c.r.URL.Query().Get("view")
	if _, found := c.liveData(name); !found {
		return badRequest("This page has no live updates.")
	}
	c.w.Header().Set("Content-Type", "text/event-stream")
	c.w.Header().Set("X-Accel-Buffering", "no")
	if c.r.Method == http.MethodHead {
		return nil
	}
	login := cmp.Or(c.cookie, c.user)
	if !c.holders.take(login) {
		return &problem{http.StatusTooManyRequests, "This login has too many pages with live updates open."}
	}
	defer c.holders.give(login)
	select {
	case c.streams <- struct{}{}:
		defer func() { <-c.streams }()
	default:
		return &problem{http.StatusServiceUnavailable, "Too many pages are open."}
	}
	c.w.WriteHeader(http.StatusOK)
	ticker := time.NewTicker(c.config.Every)
	defer ticker.Stop()
	var last []byte
	quiet := time.Now()
	for {
		block, err := c.liveBlock(name)
		if err != nil {
			c.log.Error("The dashboard could not draw a live update", err, nil)
			return nil
		}
		var news []byte
		switch {
		case !bytes.Equal(block, last):
			news, last = event(block), block
		case time.Since(quiet) >= heartbeat:
			news = []byte(": nothing new\n\n")
		}
		if len(news) > 0 {
			quiet = time.Now()
			if c.send(news) != nil {
				return nil
			}
		}
		select {
		case <-c.ctx.Done():
			return nil
		case <-c.shutdown:
			return nil
		case <-ticker.C:
		}
		if c.who() == "" {
			return nil
		}
	}
}

func (c *call) liveBlock(name string) ([]byte, error) {
	data, _ := c.liveData(name)
	var block bytes.Buffer
	if err := c.pages.byName[name].ExecuteTemplate(&block, "live", c.view(name, "", data)); err != nil {
		return nil, fmt.Errorf("outmill/dashboard: live part of %s: %w", name, err)
	}
	return block.Bytes(), nil
}

// event is a server-sent event: each line of the text has a field name in front.
func event(text []byte) []byte {
	var e bytes.Buffer
	e.WriteString("event: live\n")
	for line := range bytes.Lines(text) {
		e.WriteString("data: ")
		e.Write(bytes.TrimRight(line, "\r\n"))
		e.WriteByte('\n')
	}
	e.WriteByte('\n')
	return e.Bytes()
}

// send writes to the stream, beyond the server's limit for whole answers.
func (c *call) send(text []byte) error {
	control := http.NewResponseController(c.w)
	// A ResponseWriter without deadlines has no limit to move.
	_ = control.SetWriteDeadline(time.Now().Add(c.writeTimeout))
	if _, err := c.w.Write(text); err != nil {
		return err
	}
	return control.Flush()
}
