package joins_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/storekit"
)

func TestMetadata(t *testing.T) {
	t.Parallel()

	// The join's metadata goes to what follows, where names may mean something.
	t.Run("metadata of a join that no message can have is refused before anybody waits", func(t *testing.T) {
		t.Parallel()
		outer := outmill.NewJoinID()
		for name, metadata := range map[string]map[string]string{
			"a correlation id that is too long": {outmill.MetadataCorrelationID: strings.Repeat("x", 256)},
			"a key that begins with a blank":    {outmill.MetadataKey: " k"},
			"a delay that is none":              {outmill.MetadataDelay: "soon"},
			"ids of joins that are none":        {outmill.MetadataJoins: "etl"},
			"a join to wait for that is none":   {outmill.MetadataWaitsFor: "etl"},
			"a dedup key of a step":             {outmill.MetadataDedupKey: "k", outmill.MetadataJoins: outer.String()},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				_, err := joins.Start(t.Context(), newStore(t), storekit.Join{ExpectedSteps: 1, Metadata: metadata})
				require.ErrorIs(t, err, outmill.ErrInvalidRecord)
			})
		}
	})
}
