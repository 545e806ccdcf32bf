package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// checkTimeout limits one check of the readiness.
const checkTimeout = 3 * time.Second

// health answers the probes of a daemon.
type health struct {
	// alive returns an error if the daemon has to be started again.
	alive func() error
	// checks are what the daemon needs to do its work, by name.
	checks map[string]func(ctx context.Context) error
	// calls returns the calls that the daemon repeats by itself and that fail; nil is none.
	calls func() []outmill.FailingCall
}

// register serves /healthz, which fails only if a restart helps, and /readyz, which fails
// while the store or the broker cannot be reached, or a call that delivery needs has failed for a minute.
func (h health) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		h.answer(w, map[string]error{"process": h.alive()})
	})
	var last lastCheck
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		results := last.get(r.Context(), h.check)
		results["process"] = h.alive()
		h.addCalls(results, time.Now())
		h.answer(w, results)
	})
}

// dispensable is a failure without which the daemon still delivers.
type dispensable struct{ error }

// addCalls adds the calls that have failed for a minute, by kind.
func (h health) addCalls(results map[string]error, now time.Time) {
	if h.calls == nil {
		return
	}
	for _, call := range h.calls() {
		if now.Sub(call.Since) <= storekit.FailingFor {
			continue
		}
		err := errors.New(call.Err)
		switch {
		case storekit.EndsDelivery(call):
			results[call.Call] = err
		case results[call.Call] == nil:
			results[call.Call] = dispensable{err}
		}
	}
}

// check makes all checks, at the same time.
func (h health) check(ctx context.Context) map[string]error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	results := map[string]error{}
	var mu sync.Mutex
	var checking sync.WaitGroup
	for name, check := range h.checks {
		checking.Go(func() {
			err := check(ctx)
			mu.Lock()
			defer mu.Unlock()
			results[name] = err
		})
	}
	checking.Wait()
	return results
}

// checkLasts is how long the results of a check are the answer. Probes need no login, so that many of
// them must not become as many statements.
const checkLasts = time.Second

// lastCheck has the results of the last check. Probes that come during a check wait for it.
type lastCheck struct {
	mu      sync.Mutex
	at      time.Time
	results map[string]error
}

// get returns a copy of the results. The probe that goes away does not end the check for the others.
func (l *lastCheck) get(ctx context.Context, check func(ctx context.Context) map[string]error) map[string]error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at.IsZero() || time.Since(l.at) >= checkLasts {
		l.results = check(context.WithoutCancel(ctx))
		l.at = time.Now()
	}
	return maps.Clone(l.results)
}

// answer writes each result as "ok" or "failed". The texts of errors are only in the log,
// because they may name hosts and users.
func (h health) answer(w http.ResponseWriter, results map[string]error) {
	code, body := http.StatusOK, map[string]string{}
	for name, err := range results {
		body[name] = "ok"
		if err != nil {
			body[name] = "failed"
			if _, delivers := err.(dispensable); !delivers { //nolint:errorlint // addCalls has made it
				code = http.StatusServiceUnavailable
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// serve serves the handler at the address until the returned function is called.
func serve(ctx context.Context, address string, handler http.Handler) (at string, stop func(), err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return "", nil, fmt.Errorf("outmill: --listen: %w", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			_ = listener.Close()
		}
	}()
	return listener.Addr().String(), func() {
		_ = server.Close()
		<-done
	}, nil
}
