package storetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// rawOf returns the raw claims of the store, or skips the sentence if it has none.
func (e *env) rawOf() roles.RawClaims {
	e.T.Helper()
	raw := e.RawClaims()
	if raw == nil {
		e.T.Skip("the store is no roles.Raw")
	}
	return raw
}

func rawClaims(e *env) {
	raw := e.rawOf()
	many := map[string]string{}
	for i := range 40 {
		many[fmt.Sprint("name", i)] = fmt.Sprint("value", i)
	}
	for i, metadata := range []map[string]string{
		nil, {"a": "b"}, {"a": "b", "": "", "ä": "ö {}:,"}, {"quoted": `"\`, "line": "1\n2"}, many, {"a": "other"},
	} {
		r := suite.Rec(orders, fmt.Sprint("m", i), suite.WithKey("k"), suite.WithTTL(time.Hour))
		r.CorrelationID, r.CausationID, r.TenantID, r.TraceParent, r.TraceState = "correlation", "causation", "tenant", "parent", "state"
		r.Metadata = metadata
		if r.Payload = []byte{}; i == 0 {
			r.Payload = nil
		}
		e.Filled(r)
	}
	owner := outmill.NewOwnerToken()
	found, err := raw(e.Ctx, suite.Request(owner, suite.ByKey))
	require.NoError(e.T, err)
	var got []*outmill.Record
	for _, r := range found {
		require.False(e.T, len(r.Entries) > 0 && len(r.Metadata) > 0, "metadata both as a list and as a map")
		r.Metadata = r.MapOf()
		got = append(got, r.Record)
	}
	e.Release(got...)
	want, err := e.Store.Claim(e.Ctx, suite.Request(owner, suite.ByKey))
	require.NoError(e.T, err)
	require.Len(e.T, want, 6)
	for i, r := range got {
		require.Equal(e.T, want[i].Claims, r.Claims+1)
		r.Claims, r.LeaseUntil = want[i].Claims, want[i].LeaseUntil
	}
	require.Equal(e.T, want, got)
}

func rawOfAnother(e *env) {
	e.rawOf()
	raw := e.Store.(roles.Raw)
	type embedding struct{ outmill.Store }
	require.Nil(e.T, raw.RawClaims(embedding{e.Store}))
	require.Nil(e.T, raw.RawClaims(nil))
}
