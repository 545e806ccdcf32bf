package driver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	mongod "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	xdriver "go.mongodb.org/mongo-driver/v2/x/mongo/driver"

	"github.com/outmill/outmill/mongo/internal/driver"
	"github.com/outmill/outmill/mongo/internal/mongoerr"
	"github.com/outmill/outmill/storekit"
)

func TestDriver_Explain(t *testing.T) {
	t.Parallel()
	client, err := mongod.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.WithoutCancel(t.Context()))) })
	d := driver.New(client, driver.Config{Name: "here", Database: "test"})
	hour, cancel := context.WithTimeout(t.Context(), time.Hour)
	t.Cleanup(cancel)

	for name, err := range map[string]error{
		"that the server has ended":        mongod.CommandError{Code: mongoerr.CodeMaxTimeExpired},
		"that the driver has not sent off": fmt.Errorf("%w: 2 ms", xdriver.ErrDeadlineWouldBeExceeded),
	} {
		t.Run("a command "+name+" shortly before its deadline has the deadline's error, and the store is not away", func(t *testing.T) {
			t.Parallel()
			explained := d.Explain(hour, "ack", err)
			require.ErrorIs(t, explained, context.DeadlineExceeded)
			require.NotErrorIs(t, explained, storekit.ErrStoreAway)
			require.ErrorContains(t, explained, "here ack")
		})

		t.Run("a command "+name+" without a deadline of the caller is a store that is away", func(t *testing.T) {
			t.Parallel()
			require.ErrorIs(t, d.Explain(t.Context(), "ack", err), storekit.ErrStoreAway)
		})
	}
}
