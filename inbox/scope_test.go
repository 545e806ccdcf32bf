package inbox

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

func TestScopeName(t *testing.T) {
	t.Parallel()
	for name, parts := range map[string][]string{
		"billing":                      {"billing", "", "", "", ""},
		"billing/default/orders":       {"billing", "default", "orders", "", ""},
		"billing//orders/bill":         {"billing", "", "orders", "bill", ""},
		"billing/default/orders//acme": {"billing", "default", "orders", "", "acme"},
		"a%2Fb/50%25/ä":                {"a/b", "50%", "ä", "", ""},
		// printf '%s' 'billing//orders/bill ' | sha256sum
		"sha256:11962db15eca5f335e12d2ef2beb48f3d3a152f5fd80ed7e6de1e87c286c219c": {"billing", "", "orders", "bill ", ""},
	} {
		require.Equal(t, name, scopeName(parts...))
	}
}

func TestScopeName_Property(t *testing.T) {
	t.Parallel()
	// Few letters, so that lists are often almost the same; the limit is 255.
	part := rapid.OneOf(rapid.StringOfN(rapid.RuneFrom([]rune("a/% \x00")), 0, 3, -1),
		rapid.Just(strings.Repeat("ä", 254)), rapid.Just(strings.Repeat("ä", 255)), rapid.Just("\xff"))
	lists := rapid.Custom(func(t *rapid.T) [5]string {
		return [5]string{"c" + part.Draw(t, "consumer"), part.Draw(t, "group"), part.Draw(t, "topic"),
			part.Draw(t, "handler"), part.Draw(t, "tenant")}
	})
	rapid.Check(t, func(t *rapid.T) {
		one, other := lists.Draw(t, "one"), lists.Draw(t, "other")
		a, again, b := one, one, other
		name := scopeName(a[:]...)
		require.Equal(t, name, scopeName(again[:]...))
		require.NoError(t, storekit.CheckNote(roles.Note{Consumer: name, Key: "k", Retention: 1}))
		require.Equal(t, one == other, name == scopeName(b[:]...))
	})
}
