package storetest

import (
	"errors"
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func readsAreShown(e *env) {
	names := outmill.Topics{}
	for i := range storekit.MaxReads - 2 {
		names.Include = append(names.Include, fmt.Sprint("日本 😀 ", i))
	}
	list := []outmill.Reading{
		{Topics: names, Order: outmill.OrderKey, KeyPolicy: outmill.KeyPark},
		{Topics: outmill.Topics{Include: []string{"a*"}, Exclude: []string{`a\*`}}, Order: outmill.OrderTopic, KeyPolicy: outmill.KeySkip},
	}
	reg := withProblems("one", map[string]string{orders: "held"})
	reg.Reads = list
	e.RegisterAs(reg)
	e.RegisterAs(namedWorker("two"))
	require.Equal(e.T, list, e.workerOf("one").Reads)
	require.Equal(e.T, reg.Problems, e.workerOf("one").Problems)
	require.Empty(e.T, e.workerOf("two").Reads)
	e.RegisterAs(namedWorker("one"))
	require.Empty(e.T, e.workerOf("one").Reads)
}

func refuseReads(e *env) {
	many := outmill.Reading{}
	for range storekit.MaxReads {
		many.Topics.Include = append(many.Topics.Include, orders)
	}
	for name, reads := range map[string][]outmill.Reading{
		"too many entries": {many, {}},
		"an order":         {{Order: 3}},
		"a policy":         {{KeyPolicy: -1}},
		"an empty entry":   {{Topics: outmill.Topics{Include: []string{""}}}},
	} {
		reg := namedWorker("one")
		reg.Reads = reads
		err := e.Store.RegisterGroup(e.Ctx, reg)
		require.Truef(e.T, errors.Is(err, outmill.ErrInvalidConfig) || errors.Is(err, outmill.ErrInvalidRecord), "%s: %v", name, err)
	}
	require.Empty(e.T, e.groups(), "a refused registration writes nothing")
}
