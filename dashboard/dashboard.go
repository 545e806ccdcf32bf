package dashboard

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// Dashboard is an http.Handler: see the package comment. It may be used concurrently. It starts
// no goroutine.
type Dashboard struct {
	store  outmill.Store
	config Config
	log    watermill.LoggerAdapter
	pages  *pages
	counts *counter
	login  login
	origin *http.CrossOriginProtection
	routes map[string]route

	tries      tries
	loginLines loginLines
	holders    holders

	streams      chan struct{} // One entry for each stream that is open.
	writeTimeout time.Duration
	closing      sync.Once
	shutdown     chan struct{}
}

// maxStreams is the largest number of streams of live updates.
const maxStreams = 100

// New returns the dashboard of a store; a tenants.Set is a store of many, whose tenants the pages
// list. The store stays yours, and must be open as long as the dashboard is used. A nil logger
// logs nothing. New asks nothing of the store. Errors: outmill.ErrInvalidConfig.
func New(store outmill.Store, config Config, logger watermill.LoggerAdapter) (*Dashboard, error) {
	if outmill.IsNil(store) {
		return nil, storekit.InvalidConfig("New: the store is nil: pass an open store")
	}
	if err := config.check(); err != nil {
		return nil, err
	}
	config = config.withDefaults(store.Name())
	views, err := parsePages()
	if err != nil {
		return nil, err
	}
	d := &Dashboard{
		store:    store,
		config:   config,
		log:      storekit.LogWith(logger, watermill.LogFields{"store": store.Name()}),
		pages:    views,
		counts:   newCounter(store, config),
		login:    login{token: config.Token, secure: config.SecureCookie, rights: rightsOf(config, store.Name())},
		origin:   http.NewCrossOriginProtection(),
		streams:  make(chan struct{}, maxStreams),
		shutdown: make(chan struct{}),

		writeTimeout: usualWriteTimeout,
	}
	d.routes = routes()
	return d, nil
}

// Close ends the streams of live updates, so that http.Server.Shutdown does not wait for them:
// pass it to RegisterOnShutdown. Pages are served afterwards, too. Close may be called again.
func (d *Dashboard) Close() { d.closing.Do(func() { close(d.shutdown) }) }

// ServeHTTP serves the pages. All of their paths have one segment, and all links are relative, so
// the dashboard works behind http.StripPrefix and behind proxies that cut a prefix.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	c := &call{Dashboard: d, w: w, r: r}
	if !d.acceptsHost(r.Host) {
		c.fail(&problem{http.StatusMisdirectedRequest, "This dashboard is not served under this host name. " +
			"Add the name to the Hosts of its configuration, or open it by its IP address."})
		return
	}
	if d.origin.Check(r) != nil || isEmbedded(r) {
		c.fail(&problem{http.StatusForbidden, "This request comes from another site."})
		return
	}
	if r.URL.Path == "" {
		redirectToSlash(w, r)
		return
	}
	route, found := d.routes[strings.TrimPrefix(r.URL.Path, "/")]
	if !found {
		c.fail(&problem{http.StatusNotFound, "There is no such page."})
		return
	}
	if err := c.serve(route); err != nil {
		c.fail(err)
	}
}

// redirectToSlash makes relative links work for a dashboard that is mounted at "/outbox" too.
func redirectToSlash(w http.ResponseWriter, r *http.Request) {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	w.Header().Set("Location", "./"+path[strings.LastIndex(path, "/")+1:]+"/")
	w.WriteHeader(http.StatusPermanentRedirect)
}

// problem is an answer to the user that is no fault of the store.
type problem struct {
	status int
	text   string
}

func (p *problem) Error() string { return p.text }

// badRequest says what is wrong with the user's input.
func badRequest(text string) error { return &problem{http.StatusBadRequest, text} }

// asProblem says in words what has failed.
func (c *call) asProblem(err error) *problem {
	var p *problem
	var input *outmill.InvalidRecordError
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, outmill.ErrNotFound):
		return &problem{http.StatusNotFound, "The store has no record with this id. It was processed and deleted, " +
			"or it belongs to another store."}
	case errors.Is(err, roles.ErrUnknownJoin):
		return &problem{http.StatusNotFound, "The store has no join with this id."}
	case errors.Is(err, roles.ErrNotDead):
		return &problem{http.StatusConflict, "The record is not dead, so it was neither edited nor skipped."}
	case errors.Is(err, roles.ErrRecordChanged):
		return &problem{http.StatusConflict, "The record has changed since the page was made: go back, and look at it again. " +
			"Nothing was changed."}
	case errors.Is(err, roles.ErrJoinFinished):
		return &problem{http.StatusConflict, "The join has ended already."}
	case errors.Is(err, outmill.ErrInvalidConfig), errors.As(err, &input), errors.Is(err, roles.ErrTooManyPauses):
		return &problem{http.StatusBadRequest, err.Error()}
	case errors.Is(err, outmill.ErrSchemaMissing), errors.Is(err, outmill.ErrSchemaOutdated), errors.Is(err, outmill.ErrSchemaNewer):
		return &problem{http.StatusServiceUnavailable, err.Error()}
	}
	c.log.Error("The dashboard could not answer", err, watermill.LogFields{"path": c.r.URL.Path})
	return &problem{http.StatusBadGateway, "The store has returned an error. The log of the process that serves this dashboard has it."}
}
