package dashboard_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/dashboard"
)

// stream is a client of live updates.
type stream struct {
	*testing.T
	response *http.Response
	lines    *bufio.Reader
}

func (s *site) stream(ctx context.Context, path string) stream {
	s.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/"+path, nil)
	require.NoError(s, err)
	response, err := s.client.Do(r)
	require.NoError(s, err)
	s.Cleanup(func() { response.Body.Close() })
	require.Equal(s, http.StatusOK, response.StatusCode)
	require.Equal(s, "text/event-stream", response.Header.Get("Content-Type"))
	return stream{s.T, response, bufio.NewReader(response.Body)}
}

// next is the next event with its lines put together.
func (s stream) next() (string, error) {
	var event strings.Builder
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			return event.String(), err
		}
		if line == "\n" {
			return event.String(), nil
		}
		event.WriteString(line)
	}
}

// until reads events until one has the text.
func (s stream) until(text string) {
	s.Helper()
	for {
		event, err := s.next()
		require.NoError(s, err)
		if strings.Contains(event, text) {
			return
		}
	}
}

func TestLive(t *testing.T) {
	t.Parallel()
	quick := dashboard.Config{Every: time.Millisecond}

	t.Run("a stream has the part of the page that changes, and its next state", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			s := newSite(t, store, quick)
			s.register("billing", "orders")
			require.Contains(t, s.page("").body, `data-events="events?view=overview"`)
			live := s.stream(t.Context(), "events?view=overview")
			first, err := live.next()
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(first, "event: live\ndata: "), first)
			require.Contains(t, first, "The store has no records.")
			require.NotContains(t, first, "<header")
			s.append(orders(1)...)
			live.until("topic?group=billing&amp;topic=orders")
			s.stream(t.Context(), "events?view=topic&group=billing&topic=orders").until("<dt>Due</dt><dd>1</dd>")
			s.stream(t.Context(), "events?view=stores").until(store.Name())
		})
	})

	t.Run("a stream ends when its client goes, and gives its place back", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), quick)
		// More clients one after the other than there are places.
		for range 120 {
			ctx, cancel := context.WithCancel(t.Context())
			live := s.stream(ctx, "events?view=overview")
			_, err := live.next()
			require.NoError(t, err)
			cancel()
			_, err = io.Copy(io.Discard, live.response.Body)
			require.Error(t, err)
		}
	})

	t.Run("streams end at the shutdown of the server, which does not wait", func(t *testing.T) {
		t.Parallel()
		board, err := dashboard.New(newSQLite(t), dashboard.Config{Every: time.Hour, User: func(*http.Request) string { return "ann" }}, nil)
		require.NoError(t, err)
		s := serve(t, board)
		live := s.stream(t.Context(), "events?view=overview")
		_, err = live.next()
		require.NoError(t, err)
		require.NoError(t, s.stop(t.Context()))
		_, err = live.next()
		require.ErrorIs(t, err, io.EOF)
	})

	t.Run("a stream ends when its user is no longer let in", func(t *testing.T) {
		t.Parallel()
		var out atomic.Bool
		s := newSite(t, newSQLite(t), dashboard.Config{Every: time.Millisecond, User: func(*http.Request) string {
			if out.Load() {
				return ""
			}
			return "ann"
		}})
		live := s.stream(t.Context(), "events?view=overview")
		_, err := live.next()
		require.NoError(t, err)
		out.Store(true)
		for err == nil {
			_, err = live.next()
		}
		require.ErrorIs(t, err, io.EOF)
	})

	t.Run("a stream outlives the server's limit for whole answers", func(t *testing.T) {
		t.Parallel()
		store := newSQLite(t)
		board, err := dashboard.New(store, dashboard.Config{Every: time.Millisecond, User: func(*http.Request) string { return "ann" }}, nil)
		require.NoError(t, err)
		const limit = 200 * time.Millisecond
		s := serveWith(t, board, func(server *http.Server) { server.WriteTimeout = limit })
		live := s.stream(t.Context(), "events?view=overview")
		began := time.Now()
		for time.Since(began) < 2*limit {
			require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "orders"}))
			_, err := live.next()
			require.NoError(t, err)
		}
		require.NoError(t, s.stop(t.Context()))
	})

	t.Run("a page without live updates has no stream", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), quick)
		require.Equal(t, http.StatusBadRequest, s.get("events?view=record").StatusCode)
		require.Equal(t, http.StatusBadRequest, s.get("events").StatusCode)
		require.NotContains(t, s.page("groups").body, "data-events")
	})
}
