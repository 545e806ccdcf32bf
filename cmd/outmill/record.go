package main

import (
	"time"
	"unicode/utf8"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// recordView is a record as JSON. The payload is there only where the user asked for it.
type recordView struct {
	ID            string     `json:"id"`
	MessageID     string     `json:"message_id"`
	Store         string     `json:"store,omitempty"`
	Group         string     `json:"group"`
	Topic         string     `json:"topic"`
	Key           string     `json:"key,omitempty"`
	Status        string     `json:"status"`
	CreatedAt     *time.Time `json:"created_at,omitempty"`
	DueAt         *time.Time `json:"due_at,omitempty"`
	NextAttemptAt *time.Time `json:"next_attempt_at,omitempty"`
	ExpiresAt     *time.Time `json:"expires_at,omitempty"`
	LeaseUntil    *time.Time `json:"lease_until,omitempty"`
	Owner         string     `json:"owner,omitempty"`
	Worker        string     `json:"worker,omitempty"`
	Attempts      int        `json:"attempts"`
	Claims        int        `json:"claims"`
	Expiries      int        `json:"expiries"`
	LastError     string     `json:"last_error,omitempty"`
	// EarlierError says that LastError is from before a requeue or a skip brought the record back.
	EarlierError bool `json:"earlier_error,omitempty"`
	// Unreadable and History are those of outmill.Record.
	Unreadable    string            `json:"unreadable,omitempty"`
	History       []attemptView     `json:"history,omitempty"`
	ProcessedAt   *time.Time        `json:"processed_at,omitempty"`
	ProcessedBy   string            `json:"processed_by,omitempty"`
	CorrelationID string            `json:"correlation_id,omitempty"`
	CausationID   string            `json:"causation_id,omitempty"`
	TenantID      string            `json:"tenant_id,omitempty"`
	TraceParent   string            `json:"traceparent,omitempty"`
	DedupKey      string            `json:"dedup_key,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	PayloadBytes  int               `json:"payload_bytes"`
	// PayloadNil says that there is no payload, not even an empty one: a tombstone in Kafka.
	PayloadNil bool `json:"payload_nil,omitempty"`
	// Fingerprint is that of storekit.FingerprintOf, where a command shows one record.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Payload has a payload that is text, PayloadBase64 any other.
	Payload       *string `json:"payload,omitempty"`
	PayloadBase64 []byte  `json:"payload_base64,omitempty"`
}

// attemptView is an outmill.Attempt.
type attemptView struct {
	At     time.Time `json:"at"`
	Worker string    `json:"worker,omitempty"`
	Error  string    `json:"error,omitempty"`
}

func viewOf(r *outmill.Record, withPayload bool) recordView {
	view := recordView{
		ID: r.ID.String(), MessageID: r.MessageID, Store: r.Store, Group: r.Group, Topic: r.Topic, Key: r.Key,
		Status: string(r.Status), CreatedAt: timeOrNil(r.CreatedAt), DueAt: timeOrNil(r.DueAt),
		NextAttemptAt: timeOrNil(r.NextAttemptAt), ExpiresAt: timeOrNil(r.ExpiresAt), LeaseUntil: timeOrNil(r.LeaseUntil),
		Attempts: r.Attempts, Claims: r.Claims, Expiries: r.Expiries, LastError: r.LastError, EarlierError: storekit.ErrorIsEarlier(r),
		ProcessedAt: timeOrNil(r.ProcessedAt), ProcessedBy: r.ProcessedBy, CorrelationID: r.CorrelationID,
		CausationID: r.CausationID, TenantID: r.TenantID, TraceParent: r.TraceParent, DedupKey: r.DedupKey,
		Metadata: r.Metadata, PayloadBytes: len(r.Payload), PayloadNil: r.Payload == nil,
		Worker: r.Worker, Unreadable: r.Unreadable,
	}
	if !r.Owner.IsZero() {
		view.Owner = r.Owner.String()
	}
	for _, a := range r.History {
		view.History = append(view.History, attemptView(a))
	}
	if withPayload && r.Payload != nil {
		if text := string(r.Payload); utf8.ValidString(text) {
			view.Payload = &text
		} else {
			view.PayloadBase64 = r.Payload
		}
	}
	return view
}

// viewOfOne is the view of a record that a command shows alone.
func viewOfOne(r *outmill.Record, withPayload bool) recordView {
	view := viewOf(r, withPayload)
	view.Fingerprint = storekit.FingerprintOf(r)
	return view
}

// payloadSize is the size of a payload in words.
func payloadSize(payload []byte) string {
	if payload == nil {
		return "nil"
	}
	return count(len(payload), "byte")
}

// payloadCell is a payload in a table, in which a nil one is a dash.
func payloadCell(payload []byte) string {
	switch {
	case payload == nil:
		return "-"
	case len(payload) == 0:
		return `""`
	}
	return orDash(oneLine(string(payload), 200))
}
