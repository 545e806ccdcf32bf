package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func TestHealth(t *testing.T) {
	t.Parallel()

	t.Run("many probes within a second are answered by one check, and the next second has its own", func(t *testing.T) {
		t.Parallel()
		var checks atomic.Int32
		var dead atomic.Bool
		h := health{
			alive: func() error {
				if dead.Load() {
					return errors.New("dead")
				}
				return nil
			},
			checks: map[string]func(context.Context) error{"store": func(ctx context.Context) error {
				checks.Add(1)
				return ctx.Err()
			}},
		}
		mux := http.NewServeMux()
		h.register(mux)
		probe := func() int {
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
			return w.Code
		}
		begin := time.Now()
		var probing sync.WaitGroup
		for range 1000 {
			probing.Go(func() {
				if probe() != http.StatusOK {
					t.Error("not ready")
				}
			})
		}
		probing.Wait()
		require.LessOrEqual(t, checks.Load(), int32(1+time.Since(begin)/checkLasts))
		dead.Store(true)
		require.Equal(t, http.StatusServiceUnavailable, probe(), "the process itself is asked each time")
		before := checks.Load()
		require.Eventually(t, func() bool { probe(); return checks.Load() > before }, time.Minute, 20*time.Millisecond)
	})
}

func TestHealth_Calls(t *testing.T) {
	t.Parallel()

	t.Run("the probe names the calls that have failed for a minute, and is 503 if delivery needs them", func(t *testing.T) {
		t.Parallel()
		var calls []outmill.FailingCall
		h := health{alive: func() error { return nil }, calls: func() []outmill.FailingCall { return calls }}
		mux := http.NewServeMux()
		h.register(mux)
		probe := func(list ...outmill.FailingCall) (int, string) {
			calls = list
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
			return w.Code, w.Body.String()
		}
		failing := func(call, store string, ago time.Duration) outmill.FailingCall {
			return outmill.FailingCall{Call: call, Store: store, Since: time.Now().Add(-ago), Err: "host db.internal refuses"}
		}
		code, body := probe(failing("claim", "", 50*time.Second))
		require.Equal(t, http.StatusOK, code)
		require.JSONEq(t, `{"process": "ok"}`, body)
		code, body = probe(failing("claim", "", 61*time.Second))
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.JSONEq(t, `{"process": "ok", "claim": "failed"}`, body)
		code, body = probe(failing("upkeep", "", time.Hour), failing("listen", "", time.Hour), failing("claim", "acme", time.Hour))
		require.Equal(t, http.StatusOK, code, "messages are delivered")
		require.JSONEq(t, `{"process": "ok", "upkeep": "failed", "listen": "failed", "claim": "failed"}`, body)
		code, _ = probe(failing("claim", "acme", time.Hour), failing("claim", "", time.Hour), failing("claim", "globex", time.Hour))
		require.Equal(t, http.StatusServiceUnavailable, code)
	})
}
