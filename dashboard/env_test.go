package dashboard_test

import (
	"context"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/dashboard"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storetest/memstore"
	"github.com/outmill/outmill/tenants"
)

const token = "a token of 16 characters or more"

// hostile is what an attacker would like to see run in the browser of an operator.
const hostile = `<script>alert(1)</script>"'><img src=x onerror=alert(2)>` + "\u202egnp.exe\x00"

// site is a dashboard in a server, with a browser that keeps cookies.
type site struct {
	*testing.T
	outmill.Store
	board  *dashboard.Dashboard
	url    string
	client *http.Client
}

// newSite serves the store. The user "ann" is let in unless the configuration has a token.
func newSite(t *testing.T, store outmill.Store, config dashboard.Config) *site {
	t.Helper()
	if config.Token == "" && config.User == nil {
		config.User = func(*http.Request) string { return "ann" }
	}
	board, err := dashboard.New(store, config, nil)
	require.NoError(t, err)
	server := httptest.NewServer(board)
	server.Config.RegisterOnShutdown(board.Close)
	t.Cleanup(func() {
		board.Close()
		server.Close()
	})
	client := server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &site{t, store, board, server.URL, client}
}

func newSQLite(t *testing.T) *sqlite.Store {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	store, err := sqlite.Open(ctx, filepath.Join(t.TempDir(), "shop.db"), sqlite.Config{EnsureSchema: true, Retain: time.Hour}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

// onStores runs a test on SQLite and on the store in memory.
func onStores(t *testing.T, test func(t *testing.T, store outmill.Store)) {
	t.Helper()
	t.Run("on SQLite", func(t *testing.T) {
		t.Parallel()
		test(t, newSQLite(t))
	})
	t.Run("on the store in memory", func(t *testing.T) {
		t.Parallel()
		store := memstore.New(memstore.NewDatabase(), memstore.Options{})
		require.NoError(t, store.Ensure(t.Context()))
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		test(t, store)
	})
}

// setOfStores is a set of tenants, each with a store on SQLite.
type setOfStores struct {
	*tenants.Set
	stores []*sqlite.Store
}

func newSet(t *testing.T, keys ...string) setOfStores {
	t.Helper()
	var s setOfStores
	var list tenants.Static
	for _, key := range keys {
		store := newSQLite(t)
		s.stores = append(s.stores, store)
		list = append(list, tenants.Tenant{Key: key, Store: store})
	}
	set, err := tenants.New(context.WithoutCancel(t.Context()), tenants.Config{Discovery: list, WithoutRest: true}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Close()) })
	s.Set = set
	return s
}

// requireKnown checks that the stores are open.
func (s setOfStores) requireKnown(t *testing.T, n int) {
	t.Helper()
	require.Len(t, s.Keys(), n)
}

// Unwrap leads outmill.As to the set.
func (s setOfStores) Unwrap() outmill.Store { return s.Set }

type answer struct {
	*http.Response
	body string
}

// text is the answer without tags, as far as a test needs it.
func (a answer) text() string {
	var b strings.Builder
	inTag := false
	for _, r := range a.body {
		switch {
		case r == '<':
			inTag = true
		case r == '>':
			inTag = false
		case !inTag:
			b.WriteRune(r)
		}
	}
	return html.UnescapeString(b.String())
}

func (s *site) do(method, path string, form url.Values, change func(r *http.Request)) answer {
	s.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(s.Context(), method, s.url+"/"+path, body)
	require.NoError(s, err)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if change != nil {
		change(r)
	}
	response, err := s.client.Do(r)
	require.NoError(s, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(s, err)
	return answer{response, string(text)}
}

func (s *site) get(path string) answer {
	s.Helper()
	return s.do(http.MethodGet, path, nil, nil)
}

// page gets a page that must succeed.
func (s *site) page(path string) answer {
	s.Helper()
	a := s.get(path)
	require.Equal(s, http.StatusOK, a.StatusCode, a.body)
	return a
}

func (s *site) post(path string, pairs ...string) answer {
	s.Helper()
	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	return s.do(http.MethodPost, path, form, nil)
}

func (s *site) register(group string, topics ...string) {
	s.Helper()
	require.NoError(s, s.RegisterGroup(s.Context(), outmill.Registration{
		Group: group, Topics: outmill.Topics{Include: topics}, Worker: "host:1"}))
}

// append appends records, and returns them as the store has them.
func (s *site) append(records ...*outmill.Record) []*outmill.Record {
	s.Helper()
	require.NoError(s, s.Append(s.Context(), records...))
	return records
}

// orders are n records of the topic orders.
func orders(n int) []*outmill.Record {
	records := make([]*outmill.Record, n)
	for i := range records {
		records[i] = &outmill.Record{Topic: "orders", MessageID: fmt.Sprintf("order-%d", i), Payload: []byte(`{"card":"S3CRET"}`)}
	}
	return records
}

// kill makes the due records of the group's topic dead, with this error.
func (s *site) kill(group, topic, reason string) []*outmill.Record {
	s.Helper()
	records, err := s.Claim(s.Context(), outmill.ClaimRequest{
		Owner: outmill.NewOwnerToken(), Group: group, Topics: outmill.Topics{Include: []string{topic}}, Limit: 1000, Lease: time.Minute,
	})
	require.NoError(s, err)
	require.NotEmpty(s, records)
	settlements := make([]outmill.Settlement, len(records))
	for i, r := range records {
		settlements[i] = outmill.Settlement{Lease: r.Lease(), Err: reason}
	}
	require.NoError(s, s.Fail(s.Context(), settlements))
	return records
}

func (s *site) status(id outmill.WorkItemID) outmill.Status {
	s.Helper()
	r, err := s.Get(s.Context(), id)
	require.NoError(s, err)
	return r.Status
}

// serving is a dashboard in a server that is stopped as programs stop theirs.
type serving struct {
	*site
	server *http.Server
}

func serve(t *testing.T, board *dashboard.Dashboard) serving {
	t.Helper()
	return serveWith(t, board, func(*http.Server) {})
}

func serveWith(t *testing.T, board *dashboard.Dashboard, change func(server *http.Server)) serving {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: board, ReadHeaderTimeout: time.Minute}
	server.RegisterOnShutdown(board.Close)
	change(server)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener)
	}()
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		_ = server.Close()
		client.CloseIdleConnections()
		<-ended
	})
	return serving{&site{T: t, board: board, url: "http://" + listener.Addr().String(), client: client}, server}
}

func (s serving) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return s.server.Shutdown(ctx)
}
