package joins

import (
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill/storekit"
)

// Metadata of the message that is published as a join ends. Numbers are
// decimal.
const (
	MetadataJoinID = "outmill_join_id"
	// MetadataGroupingKey is missing where the join has none.
	MetadataGroupingKey = "outmill_join_grouping_key"
	// MetadataStatus is a storekit.JoinStatus: completed or failed.
	MetadataStatus = "outmill_join_status"
	// MetadataReason says why the join failed, or completed at its deadline; it is
	// missing otherwise. storekit.ReasonStepFailed is one of them.
	MetadataReason         = "outmill_join_reason"
	MetadataExpectedSteps  = "outmill_join_expected_steps"
	MetadataCompletedSteps = "outmill_join_completed_steps"
	MetadataFailedSteps    = "outmill_join_failed_steps"
)

// describe puts the join into the metadata, in the place of another join that
// may be there.
func describe(metadata message.Metadata, join storekit.Join) {
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
