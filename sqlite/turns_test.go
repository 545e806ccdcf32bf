package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storetest"
)

func (h harness) ReopenFair(topics ...string) outmill.Store {
	config := h.file.config
	config.FairTopics = topics
	return openFile(h.t, h.file.path, config)
}

const byAppend = "the records of a tenant are served in the order of their appends"

// fairEngine has stores that serve turns in all topics.
func fairEngine(atOnce int) storetest.Engine {
	return storetest.Engine{
		New: func(t *testing.T, options storetest.Options) storetest.Harness {
			t.Helper()
			h := harness{t, newConforming(t, options)}
			h.file.config.BusyTimeout = time.Minute
			store := h.ReopenFair("*").(file)
			store.SetAtOnce(atOnce)
			return harness{t, store}
		},
		Unsupported: map[string]string{
			"transactions": oneWriter,
			"claim: the oldest due of a topic is handed out first":                       byAppend,
			"claim: the oldest due of a topic is handed out first, however many are due": byAppend,
		},
	}
}

func TestConformance_Turns(t *testing.T) {
	t.Parallel()
	testenv.Long(t, "the contract with turns in all topics")
	storetest.Run(t, fairEngine(0))
}

func TestStore_TurnsInSteps(t *testing.T) {
	t.Parallel()
	testenv.Long(t, "walks in small steps with turns in all topics")
	storetest.WalkInSteps(t, fairEngine(1))
}

func TestStore_TenantRooms(t *testing.T) {
	t.Parallel()

	t.Run("a claim that finds only tenants without room changes nothing", func(t *testing.T) {
		t.Parallel()
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
			store := openFile(t, filepath.Join(t.TempDir(), "outbox.db"), sqlite.Config{FairTopics: []string{"*"}, EnsureSchema: true})
			store.DB().SetMaxOpenConns(1)
			_, err := store.DB().ExecContext(t.Context(), paused, 3000)
			require.NoError(t, err)
			req := claimRequest(outmill.NewOwnerToken(), 100, order)
			req.TenantRoom = func(_, _, tenant string) int { return map[string]int{"others": 3}[tenant] }
			for len(claim(t, store, req)) > 0 {
				// The first claims give turns to all records, and what has room is taken.
				req.TenantRoom = func(string, string, string) int { return 0 }
			}
			require.NoError(t, store.Append(t.Context(), rec("more", "more")))
			for range 3 {
				require.Zero(t, changes(t, store, func() { require.Empty(t, claim(t, store, req)) }), "rows changed, order %s", order)
			}
		}
	})
}
