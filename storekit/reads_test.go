package storekit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestReadConflicts(t *testing.T) {
	t.Parallel()
	reads := func(order outmill.Order, policy outmill.KeyPolicy, include ...string) outmill.Reading {
		return outmill.Reading{Topics: outmill.Topics{Include: include}, Order: order, KeyPolicy: policy}
	}
	worker := func(name string, reads ...outmill.Reading) outmill.WorkerInfo {
		return outmill.WorkerInfo{Name: name, Reads: reads}
	}
	byKey := worker("a", reads(outmill.OrderKey, outmill.KeyBlock, "orders", "bills"))
	unordered := func(name string, include ...string) outmill.WorkerInfo {
		return worker(name, reads(outmill.OrderNone, outmill.KeyBlock, include...))
	}
	stopped := unordered("b", "orders")
	stopped.Stopped = true
	const differ = `"b" without an order; "a" in the order of keys (block). So no order is promised.`
	for name, c := range map[string]struct {
		workers []outmill.WorkerInfo
		topics  []string
		want    []string
	}{
		"no reports are none": {[]outmill.WorkerInfo{worker("a"), worker("b")}, []string{"orders"}, nil},
		"one way for all":     {[]outmill.WorkerInfo{byKey, byKey}, nil, nil},
		"two orders": {[]outmill.WorkerInfo{byKey, unordered("b", "orders")}, nil,
			[]string{`Workers read "orders" differently: ` + differ}},
		"two policies": {[]outmill.WorkerInfo{byKey, worker("b", reads(outmill.OrderKey, outmill.KeyPark, "bills"))}, nil,
			[]string{`Workers read "bills" differently: "a" in the order of keys (block); "b" in the order of keys (park). ` +
				`So no order is promised.`}},
		"other topics": {[]outmill.WorkerInfo{byKey, unordered("b", "mails")}, nil, nil},
		"no policy counts without an order": {[]outmill.WorkerInfo{unordered("b", "orders"),
			worker("a", reads(outmill.OrderNone, outmill.KeySkip, "orders"))}, nil, nil},
		"two readers of one process": {[]outmill.WorkerInfo{worker("a", byKey.Reads[0],
			reads(outmill.OrderTopic, outmill.KeySkip, "orders"))}, nil,
			[]string{`Workers read "orders" differently: "a" in the order of keys (block); "a" in the order of the topic (skip). ` +
				`So no order is promised.`}},
		"a pattern and a name": {[]outmill.WorkerInfo{byKey, unordered("b", "o*")}, nil,
			[]string{`Workers read "orders" differently: ` + differ}},
		"all topics": {[]outmill.WorkerInfo{byKey, unordered("b")}, nil,
			[]string{`Workers read "bills", "orders" differently: ` + differ}},
		"two patterns, of which the caller knows a topic": {[]outmill.WorkerInfo{unordered("b", "*s"),
			worker("a", reads(outmill.OrderKey, outmill.KeyBlock, "o*"))}, []string{"orders", "o"},
			[]string{`Workers read "orders" differently: ` + differ}},
		"one that has stopped does not count": {[]outmill.WorkerInfo{byKey, stopped}, nil, nil},
		"many workers": {[]outmill.WorkerInfo{byKey, unordered("e", "orders"), unordered("d", "orders"), unordered("c", "orders"),
			unordered("b", "orders")}, nil, []string{`Workers read "orders" differently: "b", "c", "d" and 1 more without an order; ` +
			`"a" in the order of keys (block). So no order is promised.`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			runs := func(w outmill.WorkerInfo) bool { return !w.Stopped }
			for _, conflict := range storekit.ReadConflicts(outmill.GroupInfo{Workers: c.workers}, runs, c.topics...) {
				got = append(got, conflict.String())
			}
			require.Equal(t, c.want, got)
		})
	}
}
