package joins_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/roles"
)

func TestMetadata(t *testing.T) {
	t.Parallel()

	t.Run("what the setters told the message that follows is in the payload without a signature", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		next := message.NewMessage("", nil)
		outmill.SetDelay(next, time.Hour)
		next.Metadata.Set("outmill_dedup_key", "from outside")
		wait := joins.WaitRequest{Join: outmill.NewJoinID(), OnComplete: joins.Next{Topic: "next", Message: next}}
		require.NoError(t, joins.Wait(t.Context(), p.pub, wait))
		var payload struct {
			OnComplete struct{ Metadata, Instructions map[string]string } `json:"on_complete"`
		}
		require.NoError(t, json.Unmarshal(p.records(t, joins.Topic, "")[0].Payload, &payload))
		require.Equal(t, map[string]string{"outmill_delay": "1h0m0s"}, payload.OnComplete.Instructions)
		require.Equal(t, map[string]string{"outmill_dedup_key": "from outside"}, payload.OnComplete.Metadata)
	})

	// The join's metadata goes to what follows, where names may mean something.
	t.Run("metadata of a join that no message can have is refused before anybody waits", func(t *testing.T) {
		t.Parallel()
		instructed := message.NewMessage("m", nil)
		outmill.SetDedupKey(instructed, "k")
		for name, metadata := range map[string]map[string]string{
			"a correlation id that is too long": {outmill.MetadataCorrelationID: strings.Repeat("x", 256)},
			"a key that begins with a blank":    {outmill.MetadataKey: " k"},
			"what a setter told the publish":    instructed.Metadata,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				_, err := joins.Start(t.Context(), newStore(t), roles.Join{ExpectedSteps: 1, Metadata: metadata})
				require.ErrorIs(t, err, outmill.ErrInvalidRecord)
			})
		}
	})
}
