package storekit

import "github.com/outmill/outmill"

// TenantTurns is a store that can have fair topics, in which tenants with many records do not hold up the others. Each has
// 64 parts, over which the tenants are spread (PartOf), and a claim takes as much of each of several parts. A setting of
// the store names the topics. Each part has its own order, claims with outmill.OrderTopic are refused, and Full and
// PartLimit of outmill.ClaimRequest bound what a claim returns of a part. Records without a tenant are those of one more
// tenant.
type TenantTurns interface {
	// ServesTurns reports whether the topic is fair. It is false if the setting does not name the
	// topic.
	ServesTurns(topic string) bool
}

// FairTopics are the fair topics of a store: the setting of its Config. The
// zero value is none. It is safe for concurrent use.
type FairTopics struct{ match func(topic string) bool }

// NewFairTopics selects topics by patterns, as the Include list of outmill.Topics does. No
// patterns select no topics.
func NewFairTopics(patterns []string) FairTopics {
	if len(patterns) == 0 {
		return FairTopics{}
	}
	return FairTopics{outmill.Topics{Include: patterns}.Matcher()}
}

// ServesTurns reports whether the setting names the topic. See TenantTurns.
func (f FairTopics) ServesTurns(topic string) bool { return f.match != nil && f.match(topic) }
