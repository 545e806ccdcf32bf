package dashboard_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/dashboard"
	"github.com/outmill/outmill/roles"
)

// TestAttacks does what somebody does who wants to harm the operators, the store or the process
// that serves the dashboard.
func TestAttacks(t *testing.T) {
	t.Parallel()
	all := dashboard.Config{AllowChanges: true, ShowErrors: true, ShowPayloads: true}

	t.Run("a number in a form that is too large to be added to does not end the process", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), all)
		s.register("billing", "orders")
		s.append(orders(2)...)
		dead := s.kill("billing", "orders", "refused")
		most := fmt.Sprint(math.MaxInt)
		got := s.post("requeue", "status", "dead", "topic", "orders", "message", "order-0", "before", most)
		require.Equal(t, http.StatusOK, got.StatusCode)
		require.Equal(t, outmill.StatusPending, s.status(dead[0].ID))
		require.Equal(t, http.StatusOK, s.post("skip", "id", dead[1].ID.String(), "before", most).StatusCode)
	})

	t.Run("a payload that nests deeply is shown as it is, because its indents would take 100 MB", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), all)
		s.register("billing", "orders")
		const depth = 8_000
		id := s.append(&outmill.Record{Topic: "orders", Payload: []byte(strings.Repeat("[", depth) + strings.Repeat("]", depth))})[0].ID
		require.Contains(t, s.page("record?id="+id.String()).text(), strings.Repeat("[", depth))
		shallow := s.append(&outmill.Record{Topic: "orders", Payload: []byte(`{"a":[1,{"b":"[[[[[[[[[["}]}`)})[0].ID
		text := s.page("record?id=" + shallow.String()).text()
		require.Contains(t, text, "{\n  \"a\": [\n    1,\n    {\n      \"b\": \"[[[[[[[[[[\"\n    }\n  ]\n}")
	})

	t.Run("people who are not logged in learn no names of stores", func(t *testing.T) {
		t.Parallel()
		set := newSet(t, "acme", "zebra")
		s := newSite(t, set, dashboard.Config{Token: token, Name: "The shop"})
		for _, path := range []string{"login", "style.css", "live.js", "icon.svg", "nothing"} {
			there, other := s.get(path+"?store=acme"), s.get(path+"?store=nobody")
			require.Equal(t, other.StatusCode, there.StatusCode, path)
			require.Equal(t, other.body, there.body, path)
			require.NotContains(t, there.body, "acme", path)
			require.NotContains(t, there.body, "The shop", path)
		}
		there, other := s.post("login", "token", "wrong", "store", "acme"), s.post("login", "token", "wrong", "store", "nobody")
		require.Equal(t, other.StatusCode, there.StatusCode)
		require.Equal(t, other.body, there.body)
	})

	t.Run("an age that is no whole number of days is refused, because a deletion would use another one", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), all)
		for _, age := range []string{"1.5d", "7xd", "7 d", "-1d", "0d", "+7d", "999999999999999999999d", "9999999h", "1e3h"} {
			require.Equal(t, http.StatusBadRequest, s.get("records?older="+url.QueryEscape(age)).StatusCode, age)
			require.Equal(t, http.StatusBadRequest, s.post("delete", "status", "dead", "older", age).StatusCode, age)
		}
		require.Equal(t, http.StatusOK, s.get("records?older=1h30m").StatusCode)
	})

	t.Run("a token with blanks around it, which no login can match, is refused", func(t *testing.T) {
		t.Parallel()
		_, err := dashboard.New(newSQLite(t), dashboard.Config{Token: " " + token + "\n"}, nil)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, "Config.Token")
	})

	t.Run("a page of another site embeds no page, opens no stream and fetches nothing, but may link", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), dashboard.Config{})
		ask := func(path string, headers ...string) int {
			return s.do(http.MethodGet, path, nil, func(r *http.Request) {
				for i := 0; i < len(headers); i += 2 {
					r.Header.Set(headers[i], headers[i+1])
				}
			}).StatusCode
		}
		for _, site := range []string{"cross-site", "same-site"} {
			for _, mode := range []string{"no-cors", "cors", "websocket", ""} {
				require.Equal(t, http.StatusForbidden, ask("events?view=overview", "Sec-Fetch-Site", site, "Sec-Fetch-Mode", mode), mode)
				require.Equal(t, http.StatusForbidden, ask("find?id=x", "Sec-Fetch-Site", site, "Sec-Fetch-Mode", mode), mode)
			}
			for _, dest := range []string{"iframe", "frame", "object", "embed"} {
				require.Equal(t, http.StatusForbidden,
					ask("", "Sec-Fetch-Site", site, "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", dest), dest)
			}
			require.Equal(t, http.StatusOK, ask("", "Sec-Fetch-Site", site, "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"))
		}
		require.Equal(t, http.StatusOK, ask("", "Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"))
		require.Equal(t, http.StatusOK, ask("live.js", "Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "script"))
	})

	t.Run("a HEAD opens no stream", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), dashboard.Config{Every: time.Hour})
		// A stream would not end.
		require.Equal(t, http.StatusOK, s.do(http.MethodHead, "events?view=overview", nil, nil).StatusCode)
	})

	t.Run("no header, field or parameter turns a GET into a change, or a read-only dashboard into one that changes", func(t *testing.T) {
		t.Parallel()
		for _, allow := range []bool{false, true} {
			s := newSite(t, newSQLite(t), dashboard.Config{AllowChanges: allow})
			s.register("billing", "orders")
			s.append(orders(1)...)
			id := s.kill("billing", "orders", "refused")[0].ID
			override := func(r *http.Request) {
				for _, name := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} {
					r.Header.Set(name, http.MethodPost)
				}
			}
			for _, path := range dashboard.ChangeRoutes() {
				for _, method := range []string{
					http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, "post", "REQUEUE",
				} {
					address := path + "?_method=POST&id=" + id.String() + "&status=dead&group=billing&topic=orders"
					got := s.do(method, address, nil, override)
					require.NotContains(t, got.text(), " was ", "%s %s", method, path)
				}
			}
			for _, path := range []string{"", "record", "dead", "groups", "events"} {
				got := s.do(http.MethodPost, path, url.Values{"_method": {"DELETE"}, "id": {id.String()}}, override)
				require.Equal(t, http.StatusMethodNotAllowed, got.StatusCode, path)
			}
			require.Equal(t, outmill.StatusDead, s.status(id))
			pauses, _ := outmill.As[roles.Pauses](s.Store)
			paused, err := pauses.Paused(t.Context())
			require.NoError(t, err)
			require.Empty(t, paused)
			audit, _ := outmill.As[roles.Repairs](s.Store)
			page, err := audit.Audited(t.Context(), roles.AuditQuery{})
			require.NoError(t, err)
			require.Empty(t, page.Entries)
		}
	})

	t.Run("a change takes its fields from the body alone", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), all)
		s.register("billing", "orders")
		s.append(orders(1)...)
		id := s.kill("billing", "orders", "refused")[0].ID
		for _, path := range []string{"requeue", "delete", "skip"} {
			got := s.do(http.MethodPost, path+"?status=dead&id="+id.String(), url.Values{}, nil)
			require.Equal(t, http.StatusBadRequest, got.StatusCode, path)
		}
		require.Equal(t, outmill.StatusDead, s.status(id))
	})

	t.Run("no path leaves the dashboard, also under a prefix", func(t *testing.T) {
		t.Parallel()
		board, err := dashboard.New(newSQLite(t), dashboard.Config{User: func(*http.Request) string { return "ann" }}, nil)
		require.NoError(t, err)
		mux := http.NewServeMux()
		mux.Handle("/outbox/", http.StripPrefix("/outbox", board))
		mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
		for _, handler := range []http.Handler{mux, http.StripPrefix("/outbox", board)} {
			for _, path := range []string{
				"static/style.css", "templates/layout.html", "..%2fdashboard.go", "static%2f..%2f..%2fdashboard.go", "%2e%2e%2fstyle.css",
				"..%5cstyle.css", "style.css%00", "style.css/", "/style.css", "//evil.example/", "./style.css%2f..",
				"record%2f..%2f..%2f..%2fetc%2fpasswd",
				"groups/../../../etc/passwd", "%252e%252e/style.css", "STYLE.CSS",
			} {
				got := serveLocal(t, handler, http.MethodGet, "/outbox/"+path)
				require.Contains(t, []int{http.StatusNotFound, http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusBadRequest},
					got.Code, path)
				require.NotContains(t, got.Body.String(), "package dashboard", path)
				require.False(t, strings.HasPrefix(got.Header().Get("Location"), "//"), path)
			}
		}
	})

	t.Run("a form that is huge, in parts, or has many fields is refused or read in bounds", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), all)
		s.register("billing", "orders")
		s.append(orders(1)...)
		id := s.kill("billing", "orders", "refused")[0].ID
		post := func(path, kind string, body io.Reader) int {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/"+path, body)
			require.NoError(t, err)
			r.Header.Set("Content-Type", kind)
			got, err := s.client.Do(r)
			if err != nil {
				// The server has closed the connection, because the body was too large.
				return http.StatusBadRequest
			}
			defer got.Body.Close()
			return got.StatusCode
		}
		const form = "application/x-www-form-urlencoded"
		require.Equal(t, http.StatusBadRequest, post("delete", form, strings.NewReader("id="+id.String()+strings.Repeat("&a=b", 1<<20))))
		require.Equal(t, http.StatusBadRequest, post("delete", form, strings.NewReader("id="+id.String()+"&x="+strings.Repeat("y", 5<<20))))
		require.Equal(t, http.StatusBadRequest, post("delete", form, strings.NewReader("id="+id.String()+"&x=%zz")))
		var parts bytes.Buffer
		w := multipart.NewWriter(&parts)
		require.NoError(t, w.WriteField("id", id.String()))
		file, err := w.CreateFormFile("payload", "x")
		require.NoError(t, err)
		_, err = file.Write(make([]byte, 1<<20))
		require.NoError(t, err)
		require.NoError(t, w.Close())
		require.Equal(t, http.StatusBadRequest, post("delete", w.FormDataContentType(), bytes.NewReader(parts.Bytes())))
		require.Equal(t, http.StatusBadRequest, post("delete", "text/plain", strings.NewReader("id="+id.String())))
		require.Equal(t, http.StatusBadRequest, post("delete", "application/json", strings.NewReader(`{"id":"`+id.String()+`"}`)))
		require.Equal(t, outmill.StatusDead, s.status(id))
	})

	t.Run("a cookie that an attacker has set beforehand is no login, and each login makes its own", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), dashboard.Config{Token: token})
		planted := &http.Cookie{Name: "outmill_dashboard", Value: "bWFsbG9yeQ.99999999999.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}
		with := func(cookie *http.Cookie) func(r *http.Request) { return func(r *http.Request) { r.AddCookie(cookie) } }
		require.Equal(t, http.StatusSeeOther, s.do(http.MethodGet, "", nil, with(planted)).StatusCode)
		got := s.do(http.MethodPost, "login", url.Values{"token": {token}, "name": {"ann"}}, with(planted))
		require.Len(t, got.Cookies(), 1)
		require.NotEqual(t, planted.Value, got.Cookies()[0].Value)
		require.Equal(t, http.StatusSeeOther, s.do(http.MethodGet, "", nil, with(planted)).StatusCode, "the login did not make it valid")
		require.Contains(t, s.do(http.MethodGet, "", nil, with(got.Cookies()[0])).text(), "Logged in as ann")
	})

	t.Run("hostile names of topics, groups, tenants and users are text in each page and stream", func(t *testing.T) {
		t.Parallel()
		text := strings.ReplaceAll(hostile, "\x00", "") + "\r\n\r\nevent: live\rdata: <b>forged</b>"
		set := newSet(t, text, "other")
		config := all
		config.Every, config.User = time.Millisecond, func(*http.Request) string { return text }
		s := newSite(t, set, config)
		member := newSite(t, set.stores[0], all)
		name := strings.NewReplacer("\r", "", "\n", "").Replace(text)
		require.NoError(t, member.RegisterGroup(t.Context(), outmill.Registration{
			Group: name, Topics: outmill.Topics{Include: []string{outmill.Exact(name)}}, Worker: name}))
		member.append(&outmill.Record{Topic: name, Key: name, MessageID: name, TenantID: name, Metadata: map[string]string{name: name}})
		id := member.kill(name, outmill.Exact(name), text)[0].ID.String()
		set.requireKnown(t, 2)
		q, of := url.QueryEscape(name), "store="+url.QueryEscape(text)
		require.Equal(t, http.StatusOK, s.submit(s.page("edit?id="+id+"&"+of), "payload", "new").StatusCode)
		require.Equal(t, http.StatusOK, s.post("pause", "store", text, "key", "k", "topic", name, "reason", text).StatusCode)
		for _, page := range []string{
			"", "?" + of, "stores", "stores?q=" + q, "topic?topic=" + q + "&group=" + q + "&" + of, "records", "records?" + of, "dead", "dead?" + of,
			"record?id=" + id + "&" + of, "find?id=" + q, "groups?" + of, "pauses?" + of, "audit?" + of, "audit?record=" + id + "&" + of,
			"joins?" + of, "sagas?" + of,
			"requeue?id=" + id + "&" + of, "edit?id=" + id + "&" + of, "skip?id=" + id + "&" + of, "pause?topic=" + q + "&" + of,
			"drop-group?group=" + q + "&" + of, "delete?status=dead&" + of, "nothing?" + of,
		} {
			requireHarmless(t, s.get(page).body, page)
		}
		for _, view := range []string{
			"overview", "overview&" + of, "stores", "topic&topic=" + q + "&group=" + q + "&" + of,
		} {
			event, err := s.stream(t.Context(), "events?view="+view).next()
			require.NoError(t, err)
			requireHarmless(t, event, view)
			require.NotContains(t, event, "\r", "a CR alone ends a line of a stream")
			for i, line := range strings.Split(strings.TrimSuffix(event, "\n"), "\n") {
				require.True(t, i == 0 && line == "event: live" || i > 0 && strings.HasPrefix(line, "data: "), "%s: %q", view, line)
			}
		}
	})

	t.Run("a client that reads nothing loses its stream, and keeps no goroutine", func(t *testing.T) {
		t.Parallel()
		store := &counting{Store: newSQLite(t)}
		for i := range 60 {
			require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: fmt.Sprintf("%d %s", i, strings.Repeat("t", 200))}))
		}
		store.growing.Store(true)
		board, err := dashboard.New(store, dashboard.Config{Every: time.Nanosecond, User: func(*http.Request) string { return "ann" }}, nil)
		require.NoError(t, err)
		board.SetWriteTimeout(100 * time.Millisecond)
		closed := make(chan struct{})
		s := serveWith(t, board, func(server *http.Server) {
			server.ConnState = func(conn net.Conn, state http.ConnState) {
				switch state {
				case http.StateNew:
					// A few events fill small buffers.
					_ = conn.(*net.TCPConn).SetWriteBuffer(4096)
				case http.StateClosed:
					close(closed)
				default:
				}
			}
		})
		address := strings.TrimPrefix(s.url, "http://")
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4096))
		_, err = fmt.Fprintf(conn, "GET /events?view=overview HTTP/1.1\r\nHost: %s\r\n\r\n", address)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		select {
		case <-closed:
		case <-ctx.Done():
			require.NoError(t, ctx.Err(), "the stream goes on")
		}
		require.Zero(t, board.Streams())
	})

	t.Run("more streams than there are places are refused, and pages are still served", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), dashboard.Config{
			Every: time.Hour, User: func(r *http.Request) string { return "user " + r.URL.Query().Get("as") },
		})
		for i := range 100 {
			_, err := s.stream(t.Context(), "events?view=overview&as="+strconv.Itoa(i/10)).next()
			require.NoError(t, err)
		}
		got := s.get("events?view=overview")
		require.Equal(t, http.StatusServiceUnavailable, got.StatusCode)
		require.Contains(t, got.text(), "Too many pages are open.")
		s.page("")
	})
}

// requireHarmless looks for what a hostile text would have become.
func requireHarmless(t *testing.T, body, where string) {
	t.Helper()
	// Fields of forms have the text as it is, so that they send it.
	body = regexp.MustCompile(`value="[^"]*"|(?s:spellcheck="false">.*?</textarea>)`).ReplaceAllString(body, "")
	for _, bad := range []string{"<script>alert", "<img", "<b>forged", "\u202e", "\x00", "\"'>"} {
		require.NotContains(t, body, bad, where)
	}
	require.NotRegexp(t, `(?m)^(event: live\r|data: <b>)`, body, where)
}
