package storetest

import (
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func contractSentences() []sentence {
	return []sentence{
		{"List, Find, RequeueWhere and DeleteWhere filter by the contract and its version", findByContract},
		{"Find by a contract takes names as they are", findHostileContract},
	}
}

// contract is metadata as package contracts writes it, or package cloudevents.
func contract(prefix, name, version string) func(*outmill.Record) {
	names := map[string][2]string{
		"outmill": {outmill.MetadataContract, outmill.MetadataContractVersion}, "ce": {"ce_type", "ce_contractversion"},
	}[prefix]
	return func(r *outmill.Record) {
		r.Metadata = map[string]string{"other": "placed", names[0]: name}
		if version != "" {
			r.Metadata[names[1]] = version
		}
	}
}

func findByContract(e *env) {
	operator := e.repairs()
	e.Filled(
		suite.Rec(orders, "dead-1", contract("outmill", "placed", "1")), suite.Rec(orders, "dead-2", contract("outmill", "placed", "2")),
		suite.Rec(orders, "dead-ce", contract("ce", "placed", "2")), suite.Rec(orders, "leased", contract("outmill", "placed", "2")),
	)
	found := e.ClaimNamed(outmill.NewOwnerToken())
	e.Fail(found["dead-1"], found["dead-2"], found["dead-ce"])
	e.Append(
		suite.Rec(orders, "pending", contract("outmill", "placed", "2")), suite.Rec(orders, "other", contract("outmill", "Placed", "1")),
		suite.Rec(orders, "unversioned", contract("outmill", "placed", "")), suite.Rec(orders, "none"),
	)
	placed := outmill.ListQuery{Contract: "placed"}
	for _, c := range []struct {
		want  []string
		query outmill.ListQuery
	}{
		{[]string{"dead-1", "dead-2", "dead-ce", "leased", "pending", "unversioned"}, placed},
		{[]string{"dead-2", "dead-ce", "leased", "pending"}, outmill.ListQuery{Contract: "placed", ContractVersion: 2}},
		{[]string{"dead-1", "other"}, outmill.ListQuery{ContractVersion: 1}},
		{[]string{"dead-1", "dead-2", "dead-ce"}, outmill.ListQuery{Contract: "placed", Status: outmill.StatusDead}},
		{[]string{"leased"}, outmill.ListQuery{Contract: "placed", Status: outmill.StatusLeased}},
		{[]string{"pending"}, outmill.ListQuery{Contract: "placed", ContractVersion: 2, Status: outmill.StatusPending}},
		{[]string{}, outmill.ListQuery{Contract: "placed", ContractVersion: 3}},
		{[]string{}, outmill.ListQuery{Contract: "placed "}},
		{[]string{}, outmill.ListQuery{ContractVersion: 20}},
	} {
		listed := suite.Names(e.List(c.query))
		found := suite.Names(recordsOf(e.pages(operator.Find, c.query)))
		require.Equal(e.T, listed, found, "%+v", c.query)
		slices.Sort(found)
		require.Equal(e.T, c.want, found, "%+v", c.query)
	}
	require.Equal(e.T, 2, changedBy(e.pages(operator.RequeueWhere, outmill.ListQuery{Contract: "placed", ContractVersion: 2})))
	require.Equal(e.T, 1, changedBy(e.pages(operator.DeleteWhere, outmill.ListQuery{ContractVersion: 1, Status: outmill.StatusDead})))
	require.ElementsMatch(e.T, []string{"dead-2", "dead-ce", "leased", "none", "other", "pending", "unversioned"},
		suite.Names(e.List(outmill.ListQuery{})))
	_, err := operator.Find(e.Ctx, outmill.ListQuery{ContractVersion: -1})
	e.RequireRefusal(err)
}

func findHostileContract(e *env) {
	operator := e.repairs()
	e.Register(group)
	var records []*outmill.Record
	for i, text := range append(texts(), "😀", `"`, strings.Repeat("x", outmill.MaxTextLength)) {
		if !slices.Contains(texts()[:min(i, len(texts()))], text) {
			records = append(records, suite.Rec(orders, text, contract("outmill", text, "1")))
		}
	}
	e.Append(records...)
	for _, r := range records {
		found := suite.Names(recordsOf(e.pages(operator.Find, outmill.ListQuery{Contract: r.MessageID})))
		require.Equal(e.T, []string{r.MessageID}, found)
	}
}
