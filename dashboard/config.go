package dashboard

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/outmill/outmill/storekit"
)

// Config are the settings of a [Dashboard]. One of Token and User is required.
type Config struct {
	// Name is the title of the pages; "" is the name of the store.
	Name string
	// Token is the secret of the login, of 16 characters or more. The browser sends it once, by
	// POST, and gets a cookie for 12 hours that is not readable by scripts. Another token ends
	// all logins. Replicas with the same token, path and rights (AllowChanges, ShowPayloads,
	// ShowErrors) accept each other's cookies.
	Token string
	// User returns the name of the user whom your own middleware has let in, such as
	// "ann@example.com"; "" refuses the request. With User there is no login, and Token must be
	// empty. It is called for each request, concurrently.
	User func(r *http.Request) string
	// Hosts are the host names by which browsers reach the dashboard, without ports, such as
	// "admin.example.com". Loopback names and IP addresses are always accepted, because no
	// other site can have them.
	Hosts []string
	// SecureCookie sets the cookie's attribute Secure although the request came without TLS:
	// set it where a proxy in front ends TLS.
	SecureCookie bool
	// AllowChanges lets users requeue, edit, skip and delete records, pause and resume. False only reads.
	AllowChanges bool
	// ShowPayloads shows payloads, metadata and the states of sagas.
	ShowPayloads bool
	// ShowErrors shows the error texts of handlers.
	ShowErrors bool
	// CountLimit is where counts end: a larger number is shown as "10,000+". 0 is 10,000, and less
	// where there are more than two topics, at least 200, so that many topics cost the same.
	CountLimit int
	// Every is the time between two counts while people look; 0 is 2 seconds.
	Every time.Duration
	// Timeout ends the work on a request; 0 is 10 seconds.
	Timeout time.Duration
}

// minToken is the least number of characters of a token: it must not be found by trying.
const minToken = 16

func (c Config) withDefaults(name string) Config {
	c.Name = cmp.Or(c.Name, name)
	c.Every = cmp.Or(c.Every, 2*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	return c
}

func (c Config) check() error {
	switch {
	case c.Token == "" && c.User == nil:
		return storekit.InvalidConfig("Config.Token and Config.User are empty: set a token for the login, " +
			"or User where your own middleware decides who may look")
	case c.Token != "" && c.User != nil:
		return storekit.InvalidConfig("Config.Token and Config.User are both set: want one of them")
	case c.Token != "" && len(c.Token) < minToken:
		return storekit.InvalidConfig("Config.Token has %d characters: want %d or more", len(c.Token), minToken)
	case c.Token != strings.TrimSpace(c.Token):
		return storekit.InvalidConfig("Config.Token has blanks at its ends, which the login ignores: remove them")
	case c.CountLimit < 0:
		return storekit.InvalidConfig("Config.CountLimit is %d: want 0 (chosen by the number of topics) or more", c.CountLimit)
	case c.Every < 0:
		return storekit.InvalidConfig("Config.Every is %v: want 0 (2 seconds) or more", c.Every)
	case c.Timeout < 0:
		return storekit.InvalidConfig("Config.Timeout is %v: want 0 (10 seconds) or more", c.Timeout)
	}
	for _, host := range c.Hosts {
		if host == "" || strings.ContainsAny(host, "/: *") {
			return storekit.InvalidConfig("Config.Hosts has %q: want a host name without port, such as admin.example.com", host)
		}
	}
	return nil
}
