package postgres_test

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
)

// TestStore_LiteBus runs the statement for LiteBus of docs/upgrading.md on a table that has the columns of LiteBus's, in the form of each
// of its versions: with a payload in jsonb, and in text.
func TestStore_LiteBus(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/upgrading.md")
	require.NoError(t, err)
	statement := regexp.MustCompile("(?s)```sql\n(WITH moved.*?)```").FindSubmatch(page)
	require.NotNil(t, statement)
	for _, payload := range []string{"jsonb", "text"} {
		t.Run(payload, func(t *testing.T) {
			t.Parallel()
			db := pool(t)
			store := newStore(t, db, postgres.Config{})
			require.NoError(t, store.Ensure(t.Context()))
			execute(t, db, `CREATE TABLE public.litebus_outbox_messages (message_id uuid PRIMARY KEY, contract_name text NOT NULL,
					contract_version integer NOT NULL, payload `+payload+` NOT NULL, topic text,
					created_at timestamptz NOT NULL, visible_after timestamptz,
					status integer NOT NULL, attempt_count integer NOT NULL, lease_owner text, lease_expires_at timestamptz, last_error text,
					correlation_id text, causation_id text, tenant_id text)`)
			execute(t, db, `INSERT INTO public.litebus_outbox_messages (message_id, contract_name, contract_version, payload, topic, created_at,
					visible_after, status, attempt_count, lease_expires_at, correlation_id, tenant_id) VALUES
					('00000000-0000-4000-8000-000000000002', 'orders.placed', 1, '{"n":"ü"}', 'orders',
						now() - interval '1 hour', NULL, 0, 0, NULL, 'c', 'acme'),
					('00000000-0000-4000-8000-000000000001', 'orders.paid', 2, '{"n":1}', NULL, now(), NULL, 3, 4, NULL, NULL, NULL),
					('00000000-0000-4000-8000-000000000003', 'orders.placed', 1, '{}', 'orders', now(), now() + interval '1 hour', 0, 0, NULL, NULL, NULL),
					('00000000-0000-4000-8000-000000000004', 'orders.placed', 1, '{}', 'ended',
						now(), NULL, 1, 0, now() - interval '1 minute', NULL, NULL),
					('00000000-0000-4000-8000-000000000005', 'orders.placed', 1, '{}', 'leased',
						now(), NULL, 1, 0, now() + interval '1 minute', NULL, NULL),
					('00000000-0000-4000-8000-000000000006', 'orders.placed', 1, '{}', 'done', now(), NULL, 2, 0, NULL, NULL, NULL),
					('00000000-0000-4000-8000-000000000007', 'orders.placed', 1, '{}', 'dead', now(), NULL, 4, 9, NULL, NULL, NULL)`)
			for range 2 {
				execute(t, db, string(statement[1]))
			}
			require.Equal(t, 3, valueOf[int](t, db, `SELECT count(*)::int FROM public.litebus_outbox_messages`))
			require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
			found := map[string]*outmill.Record{}
			for _, r := range claimed(t, store, outmill.ClaimRequest{
				Owner: outmill.NewOwnerToken(), Group: readers, Limit: 10, Lease: time.Minute, Order: outmill.OrderKey,
			}) {
				found[r.Topic] = r
			}
			require.Len(t, found, 3)
			first := found["orders"]
			require.Equal(t, "00000000-0000-4000-8000-000000000002", first.MessageID)
			require.Contains(t, string(first.Payload), "ü")
			require.Equal(t, []string{"c", "acme"}, []string{first.CorrelationID, first.TenantID})
			require.Equal(t, map[string]string{outmill.MetadataContract: "orders.placed", outmill.MetadataContractVersion: "1"}, first.Metadata)
			require.Contains(t, found, "orders.paid", "a message without a topic has that of its contract")
			require.Contains(t, found, "ended")
			later, err := store.List(t.Context(), outmill.ListQuery{Status: outmill.StatusPending})
			require.NoError(t, err)
			require.Len(t, later, 1)
			require.WithinDuration(t, time.Now().Add(time.Hour), later[0].DueAt, time.Minute)
		})
	}
}
