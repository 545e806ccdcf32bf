package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/dashboard"
	"github.com/outmill/outmill/internal/testenv/journal"
)

// from sends a login from an address. Each request has a connection of its own.
func from(board http.Handler, address, token string, cookies ...*http.Cookie) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/login",
		strings.NewReader(url.Values{"token": {token}, "name": {"Ann"}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Host, r.RemoteAddr = "localhost", address
	for _, cookie := range cookies {
		r.AddCookie(cookie)
	}
	w := httptest.NewRecorder()
	board.ServeHTTP(w, r)
	return w
}

func newBoard(t *testing.T, config dashboard.Config, logger watermill.LoggerAdapter) *dashboard.Dashboard {
	t.Helper()
	config.Token = token
	board, err := dashboard.New(newSQLite(t), config, logger)
	require.NoError(t, err)
	return board
}

func page(board http.Handler, path string, cookie *http.Cookie) int {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, path, nil)
	r.Host = "localhost"
	r.AddCookie(cookie)
	w := httptest.NewRecorder()
	board.ServeHTTP(w, r)
	return w.Code
}

func TestLoginTries(t *testing.T) {
	t.Parallel()

	t.Run("after 10 wrong tokens an address waits, also with the right token; others and those who are logged in do not", func(t *testing.T) {
		t.Parallel()
		board := newBoard(t, dashboard.Config{}, nil)
		in := from(board, "10.0.0.1:1000", token)
		require.Equal(t, http.StatusSeeOther, in.Code)
		cookie := in.Result().Cookies()[0]
		for i := range 10 {
			require.Equal(t, http.StatusUnauthorized, from(board, fmt.Sprintf("10.0.0.1:%d", 2000+i), "wrong").Code)
		}
		for _, given := range []string{"wrong", token} {
			got := from(board, "10.0.0.1:3000", given)
			require.Equal(t, http.StatusTooManyRequests, got.Code)
			seconds, err := strconv.Atoi(got.Header().Get("Retry-After"))
			require.NoError(t, err)
			require.Positive(t, seconds)
			require.LessOrEqual(t, seconds, 60)
		}
		require.Equal(t, http.StatusOK, page(board, "/", cookie))
		require.Equal(t, http.StatusSeeOther, from(board, "10.0.0.2:1", token).Code)
	})

	t.Run("the addresses of one IPv6 network count together", func(t *testing.T) {
		t.Parallel()
		board := newBoard(t, dashboard.Config{}, nil)
		for i := range 10 {
			require.Equal(t, http.StatusUnauthorized, from(board, fmt.Sprintf("[2001:db8::%d]:1", i+1), "wrong").Code)
		}
		require.Equal(t, http.StatusTooManyRequests, from(board, "[2001:db8::abc]:1", token).Code)
		require.Equal(t, http.StatusSeeOther, from(board, "[2001:db8:0:1::1]:1", token).Code)
	})

	t.Run("after 100 wrong tokens of all addresses everybody new waits", func(t *testing.T) {
		t.Parallel()
		board := newBoard(t, dashboard.Config{}, nil)
		cookie := from(board, "10.0.0.1:1", token).Result().Cookies()[0]
		for i := range 100 {
			require.Equal(t, http.StatusUnauthorized, from(board, fmt.Sprintf("10.1.%d.1:1", i), "wrong").Code)
		}
		require.Equal(t, http.StatusTooManyRequests, from(board, "10.9.9.9:1", token).Code)
		require.Equal(t, http.StatusOK, page(board, "/", cookie))
	})

	t.Run("each login and each failed one is a line of the log, at most 10 a second, without the token", func(t *testing.T) {
		t.Parallel()
		logger := journal.New()
		board := newBoard(t, dashboard.Config{}, logger)
		began := time.Now()
		from(board, "10.0.0.1:1", token)
		from(board, "10.0.0.2:1", "a wrong token")
		for range 2000 {
			from(board, "10.0.0.3:1", "a wrong token")
		}
		lines := logger.Lines(watermill.InfoLogLevel)
		require.Equal(t, "A user has logged in to the dashboard", lines[0].Msg)
		require.Equal(t, "Ann", lines[0].Fields["user"])
		require.Equal(t, "10.0.0.1", lines[0].Fields["address"])
		require.Contains(t, lines[1].Msg, "failed")
		require.Equal(t, "10.0.0.2", lines[1].Fields["address"])
		require.LessOrEqual(t, float64(len(lines)), 10*(time.Since(began).Seconds()+1))
		for _, line := range lines {
			require.NotContains(t, fmt.Sprint(line.Msg, line.Fields), "token of")
			require.NotContains(t, fmt.Sprint(line.Fields), "wrong token")
		}
	})

	t.Run("a cookie is valid only at its mount and with its rights", func(t *testing.T) {
		t.Parallel()
		store := newSQLite(t)
		mux := http.NewServeMux()
		for mount, config := range map[string]dashboard.Config{
			"/read": {}, "/also": {}, "/write": {AllowChanges: true}, "/payloads": {ShowPayloads: true}, "/errors": {ShowErrors: true},
		} {
			config.Token = token
			board, err := dashboard.New(store, config, nil)
			require.NoError(t, err)
			mux.Handle(mount+"/", http.StripPrefix(mount, board))
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/read/login", strings.NewReader(url.Values{"token": {token}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Host = "localhost"
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		cookie := w.Result().Cookies()[0]
		require.Equal(t, http.StatusOK, page(mux, "/read/", cookie))
		require.Equal(t, http.StatusOK, page(mux, "/read/groups", cookie))
		for _, path := range []string{"/also/", "/write/", "/payloads/", "/errors/"} {
			require.Equal(t, http.StatusSeeOther, page(mux, path, cookie), path)
		}
	})

	t.Run("a login holds 10 streams, and another one has its own", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), dashboard.Config{Token: token})
		ann, bob := s.post("login", "token", token, "name", "Ann").Cookies()[0], s.post("login", "token", token, "name", "Bob").Cookies()[0]
		open := func(cookie *http.Cookie) int {
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/events?view=overview", nil)
			require.NoError(t, err)
			r.AddCookie(cookie)
			got, err := s.client.Do(r)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, got.Body.Close()) })
			return got.StatusCode
		}
		for range 10 {
			require.Equal(t, http.StatusOK, open(ann))
		}
		require.Equal(t, http.StatusTooManyRequests, open(ann))
		require.Equal(t, http.StatusOK, open(bob))
	})
}
