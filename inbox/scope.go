package inbox

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// scopeOf returns the consumer of a message's note: who handles the message, as far as another
// delivery of the same message tells it in the same way. own is the lease of a message of the inbox's
// own store. See Config.Consumer.
//
// The parts are joined by slashes, without empty ones at the end: consumer, group, topic, handler,
// tenant. A slash and a percent sign in a part become %2F and %25, so two lists of parts never
// have one name. A name that a store would refuse, because it is too long, is replaced by its
// SHA-256.
func (b *Inbox) scopeOf(msg *message.Message, own outmill.Lease) string {
	if b.cfg.Shared {
		return b.cfg.Consumer
	}
	ctx := msg.Context()
	delivery, _ := outmill.Delivery(ctx)
	topic, handler := delivery.Topic, ""
	if topic == "" {
		topic = message.SubscribeTopicFromCtx(ctx)
	}
	if own.ID.IsZero() {
		// Only the handler tells subscribers of two groups apart that name no group. Messages of
		// the inbox's own store need it not: handlers of one group compete for them.
		handler = message.HandlerNameFromCtx(ctx)
	}
	return scopeName(b.cfg.Consumer, delivery.Group, topic, handler, msg.Metadata.Get(outmill.MetadataTenantID))
}

var escaped = strings.NewReplacer("%", "%25", "/", "%2F")

func scopeName(parts ...string) string {
	for i, part := range parts {
		parts[i] = escaped.Replace(part)
	}
	name := strings.TrimRight(strings.Join(parts, "/"), "/")
	if storekit.CheckNote(roles.Note{Consumer: name, Key: "any", Retention: time.Hour}) == nil {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "sha256:" + hex.EncodeToString(sum[:])
}
