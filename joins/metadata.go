package joins

import (
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill/roles"
)

// Metadata of the message that is published when a join ends. Numbers are decimal.
const (
	MetadataJoinID = "outmill_join_id"
	// MetadataGroupingKey is missing if the join has no grouping key.
	MetadataGroupingKey = "outmill_join_grouping_key"
	// MetadataStatus is a roles.JoinStatus: completed or failed.
	MetadataStatus = "outmill_join_status"
	// MetadataReason is the reason why the join failed, or why it completed at its deadline,
	// such as roles.ReasonStepFailed; otherwise it is missing.
	MetadataReason         = "outmill_join_reason"
	MetadataExpectedSteps  = "outmill_join_expected_steps"
	MetadataCompletedSteps = "outmill_join_completed_steps"
	MetadataFailedSteps    = "outmill_join_failed_steps"
)

// describe adds the join to the metadata. It replaces the metadata of another join.
func describe(metadata message.Metadata, join roles.Join) {
	for name, value := range map[string]string{
		MetadataJoinID:         join.ID.String(),
		MetadataGroupingKey:    join.GroupingKey,
		MetadataStatus:         string(join.Status),
		MetadataReason:         join.Reason,
		MetadataExpectedSteps:  strconv.Itoa(join.ExpectedSteps),
		MetadataCompletedSteps: strconv.Itoa(join.CompletedSteps),
		MetadataFailedSteps:    strconv.Itoa(join.FailedSteps),
	} {
		if value == "" {
			delete(metadata, name)
			continue
		}
		metadata[name] = value
	}
}
