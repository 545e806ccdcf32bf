package storekit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

func TestCheckPause(t *testing.T) {
	t.Parallel()

	t.Run("each scope that an operator needs is valid", func(t *testing.T) {
		t.Parallel()
		for _, scope := range []roles.PauseScope{
			{Group: "g"}, {Topic: "t"}, {Group: "g", Topic: "t"}, {Topic: "t", Key: "k"}, {Group: "g", Topic: "t", Key: "k"},
			{TenantID: "x"}, {Group: "g", TenantID: "x"}, {Topic: "t", TenantID: "x"}, {Group: "g", Topic: "t", TenantID: "x"},
		} {
			require.NoError(t, storekit.CheckPause(scope, "ann", ""), "%v", scope)
		}
	})

	t.Run("an error names the field that is refused, and the remedy", func(t *testing.T) {
		t.Parallel()
		for want, scope := range map[string]roles.PauseScope{
			"PauseScope is empty, and would stop every delivery: set Group, Topic or TenantID": {},
			"PauseScope.Key is set without Topic: a key belongs to a topic, so set Topic too":  {Key: "k"},
			"PauseScope.Key and PauseScope.TenantID are both set: pause the key or the tenant": {Topic: "t", Key: "k", TenantID: "x"},
			"PauseScope.Topic begins or ends with a blank: trim it":                            {Topic: " t"},
			"PauseScope.Group begins or ends with a blank: trim it":                            {Group: "g "},
			"PauseScope.Key has 256 characters: want at most 255":                              {Topic: "t", Key: strings.Repeat("k", 256)},
			"PauseScope.TenantID has a NUL byte: not every engine can store it":                {TenantID: "x\x00"},
		} {
			err := storekit.CheckPause(scope, "ann", "")
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, storekit.CheckPauseScope(scope), want, "for Resume, too")
		}
		topic := roles.PauseScope{Topic: "t"}
		require.ErrorContains(t, storekit.CheckPause(topic, "", ""), "by is empty: name the person or the program")
		require.ErrorContains(t, storekit.CheckPause(topic, " ann", ""), "by begins or ends with a blank")
		require.ErrorContains(t, storekit.CheckPause(topic, "ann", strings.Repeat("r", 1001)), "reason has 1001 characters: want at most 1000")
	})
}

func TestPauseList(t *testing.T) {
	t.Parallel()

	t.Run("a pause covers the records that match each of its fields, and no others", func(t *testing.T) {
		t.Parallel()
		fields := []string{"a", "b"}
		var all []*outmill.Record
		for _, group := range fields {
			for _, topic := range fields {
				for _, key := range append(fields, "") {
					for _, tenant := range append(fields, "") {
						all = append(all, &outmill.Record{Group: group, Topic: topic, Key: key, TenantID: tenant})
					}
				}
			}
		}
		for _, s := range []roles.PauseScope{
			{Group: "a"}, {Topic: "a"}, {Group: "a", Topic: "b"}, {Topic: "a", Key: "b"}, {Group: "b", Topic: "a", Key: "b"},
			{TenantID: "a"}, {Group: "a", TenantID: "b"}, {Topic: "a", TenantID: "b"}, {Group: "a", Topic: "a", TenantID: "a"},
		} {
			list := roles.NewPauseList(1, []roles.PauseInfo{{PauseScope: s, Number: 7}})
			covered := 0
			for _, r := range all {
				matches := (s.Group == "" || s.Group == r.Group) && (s.Topic == "" || s.Topic == r.Topic) && (s.Key == "" || s.Key == r.Key) &&
					(s.TenantID == "" || s.TenantID == r.TenantID)
				require.Equal(t, matches, list.Covers(r), "%v of %v", s, r)
				inParts := list.Topic(r.Group, r.Topic) || list.Key(r.Group, r.Topic, r.Key) == 7 || list.Tenant(r.Group, r.Topic, r.TenantID) == 7
				require.Equal(t, matches, inParts, "%v of %v", s, r)
				if matches {
					covered++
				}
			}
			require.Positive(t, covered)
		}
	})

	t.Run("a pause of one of several stores covers no record of another", func(t *testing.T) {
		t.Parallel()
		list := roles.NewPauseList(1, []roles.PauseInfo{{PauseScope: roles.PauseScope{Topic: "t"}, Number: 1, Store: "one"}})
		require.True(t, list.Covers(&outmill.Record{Topic: "t", Store: "one"}))
		require.False(t, list.Covers(&outmill.Record{Topic: "t", Store: "two"}))
	})

	t.Run("a list that is nil has no pauses", func(t *testing.T) {
		t.Parallel()
		var none *roles.PauseList
		require.True(t, none.Empty())
		require.False(t, none.Has(1) || none.HasTenants() || none.Topic("g", "t") || none.Covers(&outmill.Record{Topic: "t"}))
		require.Zero(t, none.Key("g", "t", "k")+none.Tenant("g", "t", "x")+none.Generation())
		require.Empty(t, none.All())
	})
}

func TestNamePauses(t *testing.T) {
	t.Parallel()
	t.Run("a group names the pauses that may stop its records", func(t *testing.T) {
		t.Parallel()
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		var pauses []roles.PauseInfo
		for i, scope := range []roles.PauseScope{{Group: "a"}, {Group: "b"}, {TenantID: "x"}, {Topic: "orders", Key: "k"}, {Topic: "mail"}} {
			pauses = append(pauses, roles.PauseInfo{PauseScope: scope, Number: int64(i + 1), At: at, By: "ann", Reason: fmt.Sprint("r", i)})
		}
		infos := []outmill.GroupInfo{
			{Group: "a", Registrations: []outmill.RegistrationInfo{{Topics: outmill.Topics{Include: []string{"ord*"}}}}}, {Group: "c"},
		}
		storekit.NamePauses(infos, pauses)
		require.Equal(t, []string{
			`group "a" by ann since 2026-01-02T03:04:05Z: r0`, `tenant "x" by ann since 2026-01-02T03:04:05Z: r2`,
			`topic "orders", key "k" by ann since 2026-01-02T03:04:05Z: r3`,
		}, infos[0].Pauses)
		require.Equal(t, []string{`tenant "x" by ann since 2026-01-02T03:04:05Z: r2`}, infos[1].Pauses)
	})
}
