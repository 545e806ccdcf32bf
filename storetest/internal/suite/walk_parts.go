package suite

import (
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// part is the part of the item's topic, if it is fair.
func (m *model) part(it *Item) int {
	if !m.fair {
		return 0
	}
	return storekit.PartOf(it.topic, it.tenant)
}

// full reports whether the claim leaves out the item's part.
func (m *model) full(req outmill.ClaimRequest, it *Item) bool {
	return m.fair && req.Full != nil && req.Full("", it.topic)>>m.part(it)&1 == 1
}

// orders are those that a claim of the walk may have, and some more often.
func (w *Walk) orders(more ...outmill.Order) []outmill.Order {
	if !w.Queue.fair {
		more = append(more, outmill.OrderTopic)
	}
	return append([]outmill.Order{outmill.OrderNone, outmill.OrderKey}, more...)
}

// limitParts draws which parts the claim leaves out, and how much it may take of each.
func (w *Walk) limitParts(t *rapid.T, req *outmill.ClaimRequest) {
	if !w.Queue.fair {
		return
	}
	req.PartLimit = Pick(t, "part limit", 0, 0, 1, 2)
	if full := Pick(t, "full", "", "", "none", "acme", "all"); full != "" {
		req.Full = func(_, topic string) uint64 {
			switch full {
			case "acme":
				return 1 << storekit.PartOf(topic, "acme")
			case "all":
				return 1<<64 - 1
			}
			return 0
		}
	}
}

func (w *Walk) requirePartLimit(req outmill.ClaimRequest, taken []*Item) {
	w.T.Helper()
	if req.PartLimit == 0 || !w.Queue.fair {
		return
	}
	type part struct {
		topic string
		part  int
	}
	counts := map[part]int{}
	for _, it := range taken {
		of := part{it.topic, w.Queue.part(it)}
		counts[of]++
		require.LessOrEqual(w.T, counts[of], req.PartLimit, "records of part %d of %s", of.part, of.topic)
	}
}
