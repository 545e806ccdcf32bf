package storekit

import (
	"slices"

	"github.com/outmill/outmill"
)

// DueTopics returns the topics that may have claimable records, which look finds. If look
// also finds topics with records that wait for a group, adopt gives these records to the
// first group that registered for the topics and returns their number, and look runs again.
func DueTopics(look func() (due, unrouted []string, err error), adopt func(topics outmill.Topics) (adopted int, err error)) ([]string,
	error) {
	for {
		due, unrouted, err := look()
		if err != nil || len(unrouted) == 0 {
			return due, err
		}
		for i, topic := range unrouted {
			unrouted[i] = outmill.Exact(topic)
		}
		adopted, err := adopt(outmill.Topics{Include: unrouted})
		if err != nil {
			return nil, err
		}
		if adopted == 0 {
			return due, nil
		}
	}
}

// ServeDue serves topics in turn until a claim has found records: first the topics that
// were busy a moment ago, then those that due returns. serve claims from the topics in
// their order. It returns the number of claimed records, and whether it skipped so many
// records that more may be claimable. ServeDue ends when serve has claimed records, when
// due returns no topics, or with an error.
func ServeDue(
	turns *TopicRotation, busy *BusyTopics, req outmill.ClaimRequest,
	due func() ([]string, error), serve func(topics []string) (claimed int, again bool, err error),
) error {
	known := busy.Topics(req.Group, req.Topics)
	for {
		topics := known
		if topics == nil {
			var err error
			if topics, err = due(); err != nil || len(topics) == 0 {
				return err
			}
		}
		claimed, again, err := serve(turns.Order(req.Group, req.Topics, slices.Clone(topics)))
		if claimed > 0 && known == nil {
			busy.Note(req.Group, req.Topics, topics)
		}
		if claimed > 0 || err != nil || known == nil && !again {
			return err
		}
		known = nil
	}
}
