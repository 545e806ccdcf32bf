package next

import (
	"encoding/json"

	"github.com/outmill/outmill/engine/driver"
)

// logExtra returns the fields that most messages leave empty, as JSON; "" is none of them.
func logExtra(r driver.NewRow) string {
	extra := map[string]string{}
	for name, text := range map[string]string{
		"tenant_id": r.Tenant, "correlation_id": r.Record.CorrelationID, "causation_id": r.Record.CausationID,
		"traceparent": r.Record.TraceParent, "tracestate": r.Record.TraceState, "dedup_key": r.Record.DedupKey,
	} {
		if text != "" {
			extra[name] = text
		}
	}
	if len(extra) == 0 {
		return ""
	}
	text, _ := json.Marshal(extra) // of texts, which never fails
	return string(text)
}
