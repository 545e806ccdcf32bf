package roles_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

func TestRawRecord(t *testing.T) {
	t.Parallel()

	t.Run("the size of a record is the same with its metadata as a list and as a map", func(t *testing.T) {
		t.Parallel()
		rec := &outmill.Record{MessageID: "m", Topic: "orders", Payload: []byte("payload")}
		raw := roles.RawRecord{Record: rec, Entries: []roles.MetadataEntry{{Name: "name", Value: "value"}, {Name: "empty"}}}
		whole := *rec
		whole.Metadata = raw.MapOf()
		require.Equal(t, whole.Size(), raw.Size())
		require.Equal(t, whole.Size(), roles.RawRecord{Record: &whole}.Size())
	})
}
