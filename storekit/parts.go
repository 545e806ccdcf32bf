package storekit

import (
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
)

// FairParts is the number of parts of a fair topic. See PartOf.
const FairParts = 64

// PartOf returns the part, from 0 on and less than FairParts, of a fair topic that has the records of the tenant, on stores
// of package engine. It is the same for all groups and at all times, because it says where stored records are.
func PartOf(topic, tenantID string) int {
	hash := fnv.New64a()
	_, _ = io.WriteString(hash, topic+"\x00"+tenantID)
	sum := hash.Sum64()
	// The low bits alone are those of a small multiplication.
	return int((sum ^ sum>>32) % FairParts) //nolint:gosec // it is small
}

// LineName is a name for a part of a topic: the topic for part 0. Others begin with a blank, as no topic does.
func LineName(topic string, part int) string {
	if part == 0 {
		return topic
	}
	return fmt.Sprintf(" %02d %s", part, topic)
}

// TopicOfLine is the reverse of LineName.
func TopicOfLine(name string) (topic string, part int) {
	const length = len(" 00 ")
	if len(name) <= length || name[0] != ' ' {
		return name, 0
	}
	part, err := strconv.Atoi(name[1 : length-1])
	if err != nil {
		return name, 0
	}
	return name[length:], part
}
