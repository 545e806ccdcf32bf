package outmill_test

import (
	"database/sql"
	"database/sql/driver"
	"encoding"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
)

var (
	_ encoding.TextMarshaler   = outmill.WorkItemID{}
	_ encoding.TextUnmarshaler = (*outmill.WorkItemID)(nil)
	_ driver.Valuer            = outmill.WorkItemID{}
	_ sql.Scanner              = (*outmill.WorkItemID)(nil)
	_ driver.Valuer            = outmill.OwnerToken{}
	_ sql.Scanner              = (*outmill.OwnerToken)(nil)
)

var anyID = rapid.Custom(func(t *rapid.T) outmill.WorkItemID {
	return outmill.WorkItemID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes"))
})

func TestIDs(t *testing.T) {
	t.Parallel()

	t.Run("new ids ascend and never repeat", func(t *testing.T) {
		t.Parallel()
		const writers, each = 8, 2000
		made := make([][]string, writers)
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				for range each {
					made[i] = append(made[i], outmill.NewWorkItemID().String())
				}
			})
		}
		wg.Wait()
		seen := map[string]bool{}
		for _, ids := range made {
			require.IsIncreasing(t, ids)
			for _, id := range ids {
				seen[id] = true
			}
		}
		require.Len(t, seen, writers*each)
	})

	t.Run("ids are version 7 UUIDs", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, uuid.Version(7), uuid.UUID(outmill.NewWorkItemID()).Version())
		require.Equal(t, uuid.Version(7), uuid.UUID(outmill.NewOwnerToken()).Version())
		require.NotEqual(t, outmill.NewOwnerToken(), outmill.NewOwnerToken())
	})

	t.Run("only the zero value is zero", func(t *testing.T) {
		t.Parallel()
		require.True(t, outmill.WorkItemID{}.IsZero())
		require.True(t, outmill.OwnerToken{}.IsZero())
		require.False(t, outmill.NewWorkItemID().IsZero())
		require.False(t, outmill.NewOwnerToken().IsZero())
		require.False(t, outmill.WorkItemID{15: 1}.IsZero())
	})

	t.Run("an id survives text JSON and SQL", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			id := anyID.Draw(t, "id")

			parsed, err := outmill.ParseWorkItemID(id.String())
			require.NoError(t, err)
			require.Equal(t, id, parsed)
			parsed, err = outmill.ParseWorkItemID(strings.ToUpper(id.String()))
			require.NoError(t, err)
			require.Equal(t, id, parsed)

			data, err := json.Marshal(map[outmill.WorkItemID]outmill.WorkItemID{id: id})
			require.NoError(t, err)
			var decoded map[outmill.WorkItemID]outmill.WorkItemID
			require.NoError(t, json.Unmarshal(data, &decoded))
			require.Equal(t, map[outmill.WorkItemID]outmill.WorkItemID{id: id}, decoded)

			value, err := id.Value()
			require.NoError(t, err)
			require.Equal(t, id.String(), value)
			token := outmill.OwnerToken(id)
			tokenValue, err := token.Value()
			require.NoError(t, err)
			for _, column := range []any{value, tokenValue, []byte(id.String()), id[:]} {
				scannedID, scannedToken := outmill.NewWorkItemID(), outmill.NewOwnerToken()
				require.NoError(t, scannedID.Scan(column))
				require.NoError(t, scannedToken.Scan(column))
				require.Equal(t, id, scannedID)
				require.Equal(t, token, scannedToken)
			}
		})
	})

	t.Run("NULL is the zero id even in a variable that held another", func(t *testing.T) {
		t.Parallel()
		id, token := outmill.NewWorkItemID(), outmill.NewOwnerToken()
		require.NoError(t, id.Scan(nil))
		require.NoError(t, token.Scan(nil))
		require.True(t, id.IsZero())
		require.True(t, token.IsZero())
	})

	t.Run("text that is not a UUID is refused", func(t *testing.T) {
		t.Parallel()
		canonical := outmill.NewWorkItemID().String()
		for _, text := range []string{
			"", "x", canonical[1:], canonical + "0", "{" + canonical + "}", "[" + canonical + ")", "urn:uuid:" + canonical,
			strings.ReplaceAll(canonical, "-", ""), strings.Replace(canonical, "-", "_", 1), "g" + canonical[1:],
		} {
			_, err := outmill.ParseWorkItemID(text)
			require.Error(t, err, "%q", text)
			require.ErrorContains(t, err, "want a UUID")

			before := outmill.NewWorkItemID()
			id := before
			require.Error(t, id.UnmarshalText([]byte(text)), "%q", text)
			require.Equal(t, before, id, "a failed parse changes nothing")
		}
		var id outmill.WorkItemID
		require.Error(t, id.Scan("x"))
		require.Error(t, id.Scan(int64(1)))
	})
}
