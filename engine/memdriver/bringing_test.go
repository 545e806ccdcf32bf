package memdriver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/memdriver"
)

// bringing is a driver whose pages bring contents, and that runs each claim twice: the first run is undone.
type bringing struct {
	memdriver.Driver
	*brought
}

// brought is what a claim has asked for.
type brought struct {
	run  int
	asks []driver.Ask
	read []outmill.WorkItemID
	// from is the first row whose content a page brings.
	from int
}

func (d bringing) Update(ctx context.Context, begin driver.Begin, fn func(driver.Tx) error) error {
	again := errors.New("the transaction runs again")
	for claims := begin.Ask != nil; ; claims = false {
		err := d.Driver.Update(ctx, begin, func(t driver.Tx) error {
			d.run++
			err := fn(bringingTx{t, d.brought})
			if err == nil && claims {
				return again
			}
			return err
		})
		if !errors.Is(err, again) {
			return err
		}
	}
}

func (d bringing) Read(ctx context.Context, rows []driver.Row, want driver.Want) ([]driver.Content, error) {
	for _, r := range rows {
		d.read = append(d.read, r.ID)
	}
	return d.Driver.Read(ctx, rows, want)
}

type bringingTx struct {
	driver.Tx
	*brought
}

func (t bringingTx) Page(ctx context.Context, ask driver.Ask) (driver.Page, error) {
	page, err := t.Tx.Page(ctx, ask)
	t.asks, page.Contents = append(t.asks, ask), map[outmill.WorkItemID]driver.Content{}
	for i, r := range page.Ready {
		if i >= t.from {
			page.Contents[r.ID] = driver.Content{Record: &outmill.Record{MessageID: fmt.Sprintf("%d of run %d", i+1, t.run)}}
		}
	}
	return page, err
}

// openBringing opens a store with three messages of one key.
func openBringing(t *testing.T, from int) (*engine.Engine, *brought) {
	d := bringing{memdriver.Driver{Database: memdriver.New()}, &brought{from: from}}
	s := engine.New(d, engine.Config{Name: "memory"})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Ensure(t.Context()))
	topics := outmill.Topics{Include: []string{"orders"}}
	require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: "readers", Topics: topics}))
	for i := range 3 {
		r := &outmill.Record{Topic: "orders", Key: "key", MessageID: fmt.Sprint(i + 1), Payload: make([]byte, 100)}
		require.NoError(t, s.Append(t.Context(), r))
	}
	d.run, d.read, d.asks = 0, nil, nil
	return s, d.brought
}

func claimBrought(t *testing.T, s *engine.Engine, change func(req *outmill.ClaimRequest)) (names []string) {
	req := outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Group: "readers", Limit: 10, Lease: time.Minute, Order: outmill.OrderKey}
	change(&req)
	got, err := s.Claim(t.Context(), req)
	require.NoError(t, err)
	for _, r := range got {
		names = append(names, r.MessageID)
	}
	return names
}

func TestClaim_UsesWhatThePageOfItsLastRunBrings(t *testing.T) {
	t.Parallel()
	s, d := openBringing(t, 0)
	require.Equal(t, []string{"1 of run 2", "2 of run 2", "3 of run 2"}, claimBrought(t, s, func(*outmill.ClaimRequest) {}),
		"the first run is undone")
	require.Empty(t, d.read, "all of it came")
}

func TestClaim_ReadsWhatThePageHasNotBrought(t *testing.T) {
	t.Parallel()
	s, d := openBringing(t, 2)
	require.Equal(t, []string{"1", "2", "3 of run 2"}, claimBrought(t, s, func(*outmill.ClaimRequest) {}))
	require.Len(t, d.read, 2)
}

func TestClaim_AsksForNoMoreContentThanItMayHaveBeforeTheLeaseIsStored(t *testing.T) {
	t.Parallel()
	asked := func(change func(req *outmill.ClaimRequest)) driver.Ask {
		s, d := openBringing(t, 0)
		claimBrought(t, s, change)
		require.NotEmpty(t, d.asks)
		for _, ask := range d.asks {
			require.Equal(t, d.asks[0], ask)
		}
		return d.asks[0]
	}
	ask := asked(func(*outmill.ClaimRequest) {})
	require.Equal(t, 1<<20, ask.MaxBytes, "a larger record would end the process again and again, and never be a suspect")
	require.Equal(t, 10, ask.MaxRows)
	require.Equal(t, driver.Metadata|driver.Payload, ask.Want)
	ask = asked(func(req *outmill.ClaimRequest) { req.MaxBytes, req.Limit = 5000, 1 })
	require.Equal(t, 5000, ask.MaxBytes)
	require.Equal(t, 1, ask.MaxRows, "the page has more rows than the claim takes")
	ask = asked(func(req *outmill.ClaimRequest) { req.MaxBytes = 2 << 20 })
	require.Equal(t, 1<<20, ask.MaxBytes)
}
