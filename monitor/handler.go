package monitor

import (
	"encoding/json"
	"net/http"
)

// Ready returns the handler of a readiness probe: 200 if the process can use the store, 503 if
// not, with the [Report] as JSON. An answer is as old as HealthConfig.CacheFor at most.
func (h *Health) Ready() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		report := h.cached(r.Context())
		code := http.StatusOK
		if !report.Ready() {
			code = http.StatusServiceUnavailable
		}
		answer(w, code, report)
	})
}

// Live returns the handler of a liveness probe: 200 while the process serves requests. It does
// not ask the store, because a restart of the process repairs no database.
func (h *Health) Live() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, Report{Store: h.config.Name, Status: statusOf(nil), Problems: []Problem{}})
	})
}

func answer(w http.ResponseWriter, code int, report Report) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	// A client that hangs up needs no answer.
	_ = json.NewEncoder(w).Encode(report)
}
