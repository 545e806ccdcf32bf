package dashboard_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/dashboard"
	"github.com/outmill/outmill/roles"
)

func TestSafety(t *testing.T) {
	t.Parallel()

	t.Run("a request for another host is refused, also with a valid login", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), dashboard.Config{Hosts: []string{"admin.example.com"}})
		for host, want := range map[string]int{
			"localhost": 200, "localhost:8026": 200, "outbox.localhost:80": 200, "127.0.0.1:1": 200, "[::1]:8026": 200, "[::1]": 200,
			"10.1.2.3": 200, "admin.example.com": 200, "Admin.Example.com:443": 200, "admin.example.com.": 200,
			"evil.example": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421, "xadmin.example.com": 421, "evillocalhost": 421,
		} {
			got := s.do(http.MethodGet, "", nil, func(r *http.Request) { r.Host = host })
			require.Equal(t, want, got.StatusCode, host)
		}
	})

	t.Run("read-only is refused in each route that changes, by GET and POST, and changes nothing", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			s := newSite(t, store, dashboard.Config{})
			s.register("billing", "orders")
			s.append(orders(1)...)
			id := s.kill("billing", "orders", "refused")[0].ID
			routes := dashboard.ChangeRoutes()
			require.GreaterOrEqual(t, len(routes), 6)
			for _, path := range routes {
				pairs := []string{"id", id.String(), "status", "dead", "group", "billing", "topic", "orders", "reason", "x"}
				got := s.post(path, pairs...)
				require.Equal(t, http.StatusForbidden, got.StatusCode, path)
				require.Contains(t, got.text(), "only reads")
				require.Equal(t, http.StatusForbidden, s.get(path+"?id="+id.String()+"&status=dead&group=billing&topic=orders").StatusCode, path)
			}
			require.Equal(t, outmill.StatusDead, s.status(id))
			pauses, _ := outmill.As[roles.Pauses](store)
			paused, err := pauses.Paused(t.Context())
			require.NoError(t, err)
			require.Empty(t, paused)
		})
	})

	t.Run("each route that takes a POST changes the store or the login, and nothing else does", func(t *testing.T) {
		t.Parallel()
		posts := slices.Sorted(slices.Values(dashboard.PostRoutes()))
		changes := append(dashboard.ChangeRoutes(), "login", "logout")
		slices.Sort(changes)
		require.Equal(t, changes, posts)
	})

	t.Run("read-only pages have no form or link that changes", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), dashboard.Config{})
		s.register("billing", "orders")
		s.append(orders(1)...)
		id := s.kill("billing", "orders", "refused")[0].ID.String()
		for _, page := range []string{
			"", "groups", "dead", "audit", "records?status=dead", "record?id=" + id, "pauses", "topic?topic=orders&group=billing",
		} {
			body := s.page(page).body
			require.NotContains(t, body, `method="post"`, page)
			for _, path := range dashboard.ChangeRoutes() {
				require.NotContains(t, body, `"`+path+`?`, page)
			}
		}
	})

	t.Run("a POST of another site is refused", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), dashboard.Config{AllowChanges: true})
		s.register("billing", "orders")
		s.append(orders(1)...)
		id := s.kill("billing", "orders", "refused")[0].ID
		form := url.Values{"id": {id.String()}}
		for name, header := range map[string][2]string{
			"a site":        {"Sec-Fetch-Site", "cross-site"},
			"a subdomain":   {"Sec-Fetch-Site", "same-site"},
			"an old client": {"Origin", "https://evil.example"},
			"a sandbox":     {"Origin", "null"},
		} {
			got := s.do(http.MethodPost, "requeue", form, func(r *http.Request) { r.Header.Set(header[0], header[1]) })
			require.Equal(t, http.StatusForbidden, got.StatusCode, name)
		}
		require.Equal(t, outmill.StatusDead, s.status(id))
		got := s.do(http.MethodPost, "requeue", form, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") })
		require.Equal(t, http.StatusOK, got.StatusCode)
		require.Equal(t, outmill.StatusPending, s.status(id))
	})

	t.Run("each answer forbids inline scripts and styles, frames and caches", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), dashboard.Config{Token: token})
		for _, path := range []string{"", "login", "nothing", "events", "live.js", "style.css"} {
			h := s.get(path).Header
			policy := h.Get("Content-Security-Policy")
			require.Contains(t, policy, "default-src 'none'")
			require.NotContains(t, policy, "unsafe")
			require.Contains(t, policy, "frame-ancestors 'none'")
			require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
			require.Contains(t, h.Get("Cache-Control"), "no-")
			require.Equal(t, "same-origin", h.Get("Referrer-Policy"))
		}
	})

	t.Run("no page has an inline script, style or handler of events", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), dashboard.Config{AllowChanges: true, ShowErrors: true, ShowPayloads: true})
		s.register("billing", "orders")
		s.append(orders(1)...)
		id := s.kill("billing", "orders", "refused")[0].ID.String()
		for _, page := range []string{
			"", "groups", "dead", "audit", "edit?id=" + id, "skip?id=" + id, "records", "record?id=" + id,
			"pauses", "pause", "joins", "sagas", "stores", "requeue?id=" + id,
		} {
			body := s.page(page).body
			require.NotContains(t, body, "<style", page)
			require.NotContains(t, body, " style=", page)
			require.NotRegexp(t, `\son[a-z]+=`, body, page)
			require.Equal(t, 1, strings.Count(body, "<script"), page)
		}
	})

	t.Run("texts of users are escaped, and characters that change their surroundings replaced", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), dashboard.Config{AllowChanges: true, ShowErrors: true, ShowPayloads: true})
		text := strings.ReplaceAll(hostile, "\x00", "")
		require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{
			Group: text, Topics: outmill.Topics{Include: []string{outmill.Exact(text)}}, Worker: "w"}))
		s.append(&outmill.Record{
			Topic: text, Key: text, MessageID: text, CorrelationID: text, CausationID: text, TenantID: text, Payload: []byte(hostile),
			Metadata: map[string]string{text: text},
		})
		id := s.kill(text, outmill.Exact(text), hostile)[0].ID.String()
		pauses, _ := outmill.As[roles.Pauses](s.Store)
		require.NoError(t, pauses.Pause(t.Context(), roles.PauseScope{Topic: text}, text, text))
		q := url.QueryEscape(text)
		for _, page := range []string{
			"", "?q=" + q, "topic?topic=" + q + "&group=" + q, "groups", "records", "records?status=dead&topic=" + q + "&error=" + q,
			"record?id=" + id, "dead?topic=" + q, "edit?id=" + id, "skip?id=" + id, "audit", "find?id=" + q,
			"pauses", "requeue?id=" + id, "requeue?status=dead&topic=" + q, "pause?topic=" + q,
			"resume?topic=" + q, "drop-group?group=" + q, "stores?q=" + q, "sagas?kind=" + q + "&correlation=" + q, "joins?grouping=" + q,
		} {
			body := s.get(page).body
			require.NotContains(t, body, "<script>alert", page)
			require.NotContains(t, body, "<img", page)
			require.NotContains(t, body, "\x00", page)
		}
		require.NotContains(t, s.page("record?id="+id).body, "\u202e")
		require.Contains(t, s.page("record?id="+id).body, "&lt;script&gt;alert(1)&lt;/script&gt;")
	})

	t.Run("payloads, metadata and error texts are hidden unless they are allowed", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			plain := newSite(t, store, dashboard.Config{})
			plain.register("billing", "orders")
			plain.append(&outmill.Record{Topic: "orders", MessageID: "m", Payload: []byte("PAY-S3CRET"),
				Metadata: map[string]string{"META-NAME": "META-S3CRET"}})
			id := plain.kill("billing", "orders", "ERR-S3CRET")[0].ID.String()
			pages := []string{
				"record?id=" + id, "records?status=dead", "find?id=m", "groups", "dead", "audit", "", "topic?topic=orders&group=billing",
			}
			for _, page := range pages {
				body := plain.page(page).body
				require.NotContains(t, body, "S3CRET", page)
				require.NotContains(t, body, "META-NAME", page)
			}
			require.Contains(t, plain.page("record?id="+id).text(), "10 bytes.")
			guess := plain.get("records?status=dead&error=ERR")
			require.Equal(t, http.StatusBadRequest, guess.StatusCode, "a search would tell the hidden text letter by letter")

			withErrors := newSite(t, store, dashboard.Config{ShowErrors: true}).page("record?id=" + id).body
			require.Contains(t, withErrors, "ERR-S3CRET")
			require.NotContains(t, withErrors, "PAY-S3CRET")
			withPayloads := newSite(t, store, dashboard.Config{ShowPayloads: true}).page("record?id=" + id).body
			require.Contains(t, withPayloads, "PAY-S3CRET")
			require.Contains(t, withPayloads, "META-S3CRET")
			require.NotContains(t, withPayloads, "ERR-S3CRET")
		})
	})

	t.Run("long texts are cut", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), dashboard.Config{ShowErrors: true, ShowPayloads: true})
		s.register("billing", "orders")
		s.append(&outmill.Record{Topic: "orders", Payload: []byte(strings.Repeat("p", 1<<20)),
			Metadata: map[string]string{"m": strings.Repeat("v", 1<<16)}})
		id := s.kill("billing", "orders", strings.Repeat("e", 4000))[0].ID.String()
		require.Less(t, len(s.page("records?status=dead").body), 10_000)
		page := s.page("record?id=" + id)
		require.Less(t, len(page.body), 40_000)
		require.Contains(t, page.text(), "1,048,576 bytes. This is its beginning.")
	})

	t.Run("wrong settings are refused, with the name of the field", func(t *testing.T) {
		t.Parallel()
		user := func(*http.Request) string { return "ann" }
		store := newSQLite(t)
		for field, config := range map[string]dashboard.Config{
			"Config.Token and Config.User are empty":    {},
			"Config.Token and Config.User are both set": {Token: token, User: user},
			"Config.Token has 5 characters":             {Token: "short"},
			"Config.Hosts":                              {User: user, Hosts: []string{"https://x"}},
			"Config.CountLimit":                         {User: user, CountLimit: -1},
			"Config.Every":                              {User: user, Every: -1},
			"Config.Timeout":                            {User: user, Timeout: -1},
		} {
			_, err := dashboard.New(store, config, nil)
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
			require.ErrorContains(t, err, field)
		}
		_, err := dashboard.New(nil, dashboard.Config{User: user}, nil)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	})
}

func TestLogin(t *testing.T) {
	t.Parallel()

	t.Run("each page and stream needs the login, and shows nothing of the store before", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), dashboard.Config{Token: token, AllowChanges: true, Name: "The shop"})
		for _, path := range dashboard.ClosedRoutes() {
			got := s.get(path)
			switch path {
			case "events":
				require.Equal(t, http.StatusUnauthorized, got.StatusCode, path)
			default:
				require.Equal(t, http.StatusSeeOther, got.StatusCode, path)
				require.True(t, strings.HasPrefix(got.Header.Get("Location"), "login"), path)
			}
			require.NotContains(t, got.body, "The shop", path)
		}
		for _, path := range dashboard.PostRoutes() {
			if path != "login" {
				require.Equal(t, http.StatusUnauthorized, s.post(path).StatusCode, path)
			}
		}
		require.NotContains(t, s.get("nothing").body, "The shop")
	})

	t.Run("the token becomes a cookie that scripts and other sites cannot use, and leads to the page", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), dashboard.Config{Token: token})
		to := s.get("records?status=dead").Header.Get("Location")
		require.Equal(t, "login?next="+url.QueryEscape("records?status=dead"), to)
		require.Contains(t, s.page(to).body, `name="next" value="records?status=dead"`)
		got := s.post("login", "token", token, "name", "Ann", "next", "records?status=dead")
		require.Equal(t, http.StatusSeeOther, got.StatusCode)
		require.Equal(t, "records?status=dead", got.Header.Get("Location"))
		cookie := got.Cookies()[0]
		require.True(t, cookie.HttpOnly)
		require.Equal(t, http.SameSiteStrictMode, cookie.SameSite)
		require.Empty(t, cookie.Path, "the browser takes the prefix")
		require.Empty(t, cookie.Domain)
		require.False(t, cookie.Secure)
		require.Equal(t, 12*3600, cookie.MaxAge)
		require.NotContains(t, cookie.Value, token)
		page := s.do(http.MethodGet, "", nil, func(r *http.Request) { r.AddCookie(cookie) })
		require.Equal(t, http.StatusOK, page.StatusCode)
		require.Contains(t, page.text(), "Logged in as Ann")
	})

	t.Run("the cookie is for TLS only where the request or the configuration says that there is TLS", func(t *testing.T) {
		t.Parallel()
		secure := func(config dashboard.Config, state *tls.ConnectionState) bool {
			board, err := dashboard.New(newSQLite(t), config, nil)
			require.NoError(t, err)
			r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/login",
				strings.NewReader(url.Values{"token": {token}}.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Host, r.TLS = "localhost", state
			w := httptest.NewRecorder()
			board.ServeHTTP(w, r)
			require.Len(t, w.Result().Cookies(), 1)
			return w.Result().Cookies()[0].Secure
		}
		require.True(t, secure(dashboard.Config{Token: token}, &tls.ConnectionState{}))
		require.True(t, secure(dashboard.Config{Token: token, SecureCookie: true}, nil))
	})

	t.Run("a wrong token, and a cookie that was changed or signed with another token, are refused", func(t *testing.T) {
		t.Parallel()
		store := newSQLite(t)
		s := newSite(t, store, dashboard.Config{Token: token})
		wrong := s.post("login", "token", "another token of this length", "name", "x")
		require.Equal(t, http.StatusUnauthorized, wrong.StatusCode)
		require.Empty(t, wrong.Cookies())
		require.Contains(t, wrong.text(), "The token is wrong.")
		require.Equal(t, http.StatusUnauthorized, s.post("login", "token", "").StatusCode)

		other := newSite(t, store, dashboard.Config{Token: "quite another token"})
		foreign := other.post("login", "token", "quite another token").Cookies()[0]
		own := s.post("login", "token", token, "name", "Ann").Cookies()[0]
		parts := strings.Split(own.Value, ".")
		for name, value := range map[string]string{
			"another token": foreign.Value, "another name": "Qm9i." + parts[1] + "." + parts[2],
			"a later end":  parts[0] + ".99999999999." + parts[2],
			"no signature": parts[0] + "." + parts[1] + ".", "nothing": "", "no parts": "x",
		} {
			got := s.do(http.MethodGet, "", nil, func(r *http.Request) { r.AddCookie(&http.Cookie{Name: own.Name, Value: value}) })
			require.Equal(t, http.StatusSeeOther, got.StatusCode, name)
		}
		got := s.do(http.MethodGet, "", nil, func(r *http.Request) {
			r.AddCookie(foreign)
			r.AddCookie(own)
		})
		require.Equal(t, http.StatusOK, got.StatusCode, "the cookie of another dashboard of this host is in front")
	})

	t.Run("a token in an address logs nobody in", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), dashboard.Config{Token: token})
		require.Equal(t, http.StatusSeeOther, s.get("?token="+url.QueryEscape(token)).StatusCode)
		require.Equal(t, http.StatusUnauthorized, s.post("login?token="+url.QueryEscape(token)).StatusCode)
	})

	t.Run("the login leads to no other site", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), dashboard.Config{Token: token})
		for _, next := range []string{"https://evil.example/", "//evil.example", "/etc", "login", "logout", "javascript:alert(1)", "", "../x",
			"records\r\nX: y"} {
			got := s.post("login", "token", token, "next", next)
			require.Equal(t, "./", got.Header.Get("Location"), next)
		}
	})

	t.Run("to log out removes the cookie", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), dashboard.Config{Token: token})
		cookie := s.post("login", "token", token).Cookies()[0]
		got := s.do(http.MethodPost, "logout", url.Values{}, func(r *http.Request) { r.AddCookie(cookie) })
		require.Negative(t, got.Cookies()[0].MaxAge)
		require.Equal(t, cookie.Name, got.Cookies()[0].Name)
	})

	t.Run("with a function of your own there is no login, and nobody it does not name gets in", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), dashboard.Config{User: func(r *http.Request) string { return r.Header.Get("X-User") }})
		require.Equal(t, http.StatusForbidden, s.get("").StatusCode)
		require.Equal(t, http.StatusNotFound, s.get("login").StatusCode)
		require.Equal(t, http.StatusNotFound, s.post("login", "token", "").StatusCode)
		got := s.do(http.MethodGet, "", nil, func(r *http.Request) { r.Header.Set("X-User", "ann") })
		require.Equal(t, http.StatusOK, got.StatusCode)
		require.Contains(t, got.text(), "You are ann.")
	})
}
