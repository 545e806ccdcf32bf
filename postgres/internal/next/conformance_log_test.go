package next_test

import (
	"testing"

	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/storetest"
)

// notYet are the sentences that the store does not keep with its log, by the reason.
var notYet = map[string][]string{
	"a row of a transaction that was open at the end of a registration waits for the next group": {
		"registrations: a record of a transaction that was open when its registration went goes with a later round",
	},
	"a sweep takes all of a log at once": {
		"registrations: ExpireRegistrations does no more than its limit of either, and ends all in the end",
	},
	"not done yet": {
		"holding: a message that is appended after a registration that holds reaches its group",
		"inspect: the view for people agrees with Stats and List",
		"inspect: the view for people shows records that wait for a group",
		"model: random walks leave the store as the model of a queue",
		"model: random walks over fair topics leave the store as the model of a queue",
	},
	"rows of the log that no claim has read are parked by the claim that meets them": {
		"audit: Requeue, Delete, Edit and Skip leave an entry each: who, when, what, and how many",
		"audit: an edit and a requeue by one command leave one entry with the count of the requeue",
		"dead letters: DeadLetters has the head of each parked key with its error and what waits behind it",
		"dead letters: DeadLetters returns the heads that match every field of the query",
		"dead letters: the next parked record is the head when the head is gone",
		"edit: Edit of a parked record leaves its key parked",
		"find: RequeueWhere brings along what was parked with a key",
		"park: Requeue of one parked key leaves another parked",
		"park: Requeue of some or all of the parked records counts each once",
		"park: a key is free when its group was dropped",
		"park: a key may be parked again",
		"park: a key stays parked until the last of its parked records is deleted",
		"park: a record failed with Park leaves the earlier records of its key",
		"park: a record failed with Park takes the later pending records of its key along",
		"park: one call of Fail parks the key of a message in each group",
		"skip: Skip leaves other keys, topics and groups parked",
		"skip: Skip of a dead record before the head leaves the key parked",
		"skip: Skip of a parked record behind the head removes it alone, and its key stays parked",
		"skip: Skip of the head of a parked key removes it and brings the others back, in order",
		"skip: Skip on a closed store, or in a context that has ended, changes nothing",
		"skip: a released record that fails parks the rest again",
	},
	"the ids of copies are those of chains": {
		"groups: the first group by name gets the id of the record, others ids of their own, and all the message id",
		"groups: what one group does to its record is nothing to another group",
		"receipt: Append says which groups a record reaches, and under which id each",
	},
}

func TestConformance_Log(t *testing.T) {
	t.Parallel()
	e := suiteOn(t, connect(t, postgrestest.Database(t), 40, nil), 0, true)
	e.Unsupported = map[string]string{}
	for reason, sentences := range notYet {
		for _, sentence := range sentences {
			e.Unsupported[sentence] = reason
		}
	}
	storetest.Run(t, e)
}
