package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/roles"
)

// sqlManySagas makes $1 sagas: half are finished, and one in ten of all is to be deleted.
const sqlManySagas = `
INSERT INTO outmill.sagas (id, type, correlation, version, state, finished, created_at, updated_at, delete_at)
SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, 'order', 'o' || i, 1, '{"Paid":true}', i % 2 = 0,
	now() - interval '2 days', now() - i % 3 * interval '1 day',
	CASE WHEN i % 10 = 0 THEN now() - interval '1 minute' WHEN i % 2 = 0 THEN now() + interval '1 day' END
FROM generate_series(1, $1::integer) AS i`

func TestSagaPlans_Million(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "plans of sagas at a million rows")
	url, _, admin := filled(t)
	execute(t, admin, "ALTER TABLE outmill.sagas SET (autovacuum_enabled = false)")
	execute(t, admin, "ALTER TABLE outmill.sagas SET UNLOGGED")
	execute(t, admin, sqlManySagas, rows())
	bounded := func(t *testing.T, mode string) {
		t.Helper()
		e := explained(t, url, mode)
		e.t, e.tell = t, func(call string, limit int, found []plan) {
			for _, p := range found {
				p.Plan.each(func(n node) {
					if fault := faultOf(n, limit); fault != "" || n.Type == "Seq Scan" && n.Relation == "sagas" {
						t.Errorf("%s: a node %s:\n%s\nof\n%s", call, fault, n, p.Text)
					}
				})
			}
		}
		e.retainedSagas()
	}
	for _, analyzed := range []string{"never analyzed", "analyzed"} {
		if analyzed == "analyzed" {
			execute(t, admin, "ANALYZE outmill.sagas")
		}
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			t.Run("no call on sagas reads more than it needs, "+analyzed+", "+mode, func(t *testing.T) { bounded(t, mode) })
		}
	}
}

func (e *exercising) retainedSagas() {
	e.t.Helper()
	ctx := e.t.Context()
	type state struct{ Paid bool }
	saga := &roles.Saga{Type: "order", Correlation: "new"}
	options := roles.SagaOptions{KeepUnknown: true}
	for range warm {
		e.call("insert saga", 1, func() error { saga.ID = [16]byte{}; return e.store.InsertSaga(ctx, saga, &state{}, options) })
		e.call("find saga", 1, func() (err error) {
			saga, err = e.store.FindSaga(ctx, saga.Type, saga.Correlation, &state{}, options)
			return err
		})
		e.call("list sagas", 100, func() error {
			page, err := e.store.ListSagas(ctx, roles.SagaQuery{}, options)
			require.Len(e.t, page.Sagas, 100)
			return err
		})
		e.call("update saga", 1, func() error { saga.Finished = true; return e.store.UpdateSaga(ctx, saga, &state{}, options) })
		e.call("retain saga", 1, func() error { return e.store.RetainSaga(ctx, saga, time.Hour, options) })
		e.call("delete saga", 1, func() error { return e.store.DeleteSaga(ctx, saga, options) })
		saga.Finished = false
		for name, deleted := range map[string]func() (int, error){
			"delete old sagas":                   func() (int, error) { return e.store.DeleteOldSagas(ctx, 100) },
			"delete finished sagas":              func() (int, error) { return e.store.DeleteFinishedSagas(ctx, "order", time.Hour, 100) },
			"delete finished sagas that are few": func() (int, error) { return e.store.DeleteFinishedSagas(ctx, "other", time.Hour, 100) },
		} {
			e.call(name, 100, func() error {
				n, err := deleted()
				require.True(e.t, n == 100 || name == "delete finished sagas that are few", name)
				return err
			})
		}
	}
}
