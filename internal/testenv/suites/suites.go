// Package suites shortens the suites of stores on servers, for go test without more. Package sqlite has the whole contract then, and
// .ci/run has it for each store.
package suites

import (
	"maps"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/storetest"
)

// longest are the sections and sentences that take two thirds of the time, because they are thousands of transactions.
var longest = []string{
	"model", "topic age", "workers",
	"stress: repairs of dead records and pauses at once lose no record and no edit, and keys keep their order",
	"parts: due again, leased or held, each record of each part comes, in the order of its key, by key",
	"parts: due again, leased or held, each record of each part comes, in the order of its key, without an order",
	"find: Find takes texts as they are",
	"giving back: an interrupted drop goes on as it began, although another group has registered since",
	"giving back: a group that registers after an interrupted drop keeps what it still has",
	"giving back: the end of registrations leaves a drop that was interrupted alone",
	"topics: a registration routes the topics that its patterns match and no others",
	"pause: Resume hands out to claims by key in order what many pauses have held, also after the first record of each is deleted",
	"pause: Resume hands out thousands of records, each once and in the order of their keys",
	"pause: a claim finds a record behind thousands of paused ones",
	"pause: claims while pauses come and go hand out each record once and in the order of its key",
	"unreadable: what waits behind a record that cannot be decoded follows it to death with KeyPark, and is delivered otherwise",
}

var longestOfJoins = []string{"model", "workers", "append", "attach", "report", "finish", "groups", "undeliverable"}

// Queue returns the engine for storetest.Run, without the longest sections and sentences unless all tests run.
func Queue(e storetest.Engine) storetest.Engine { return without(e, longest) }

// Joins is Queue for joinstest.Run.
func Joins(e storetest.Engine) storetest.Engine { return without(e, longestOfJoins) }

// Transactions is Queue for txtest.Run.
func Transactions(e storetest.Engine) storetest.Engine { return without(e, []string{"notes"}) }

func without(e storetest.Engine, long []string) storetest.Engine {
	if testenv.All() {
		return e
	}
	left := maps.Clone(e.Unsupported)
	if left == nil {
		left = map[string]string{}
	}
	for _, name := range long {
		left[name] = testenv.Shorter("it takes thousands of transactions")
	}
	e.Unsupported = left
	return e
}
