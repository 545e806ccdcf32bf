package driver

import (
	"context"

	"github.com/outmill/outmill/engine/driver"
)

var _ driver.Ender = (*Driver)(nil)

// End sends the change with the COMMIT of a transaction that the driver has begun on a connection of pgx. See driver.Ender.
func (d *Driver) End(ctx context.Context, caller any, s driver.Swap) (done driver.Swapped, can bool, err error) {
	own, can := caller.(*openTx)
	if !can {
		return done, false, nil
	}
	unlock, err := d.inUse.Lock(ctx, lockOwner(caller))
	if err != nil {
		return done, true, err
	}
	defer unlock()
	if err := own.proven(ctx); err != nil {
		return done, true, err
	}
	t := &tx{d: d, to: own}
	// The caller gets none of its settings back, because the transaction ends.
	t.add("borrow", nil, nil)
	t.addSwap(s, &done)
	err = own.sendLast(ctx, t.queue)
	if code(err) == codeLost {
		return driver.Swapped{}, true, nil
	}
	return done, true, withSession(ctx, own.conn, err)
}

// addSwap queues the statements of a Swap. They fail if the entry is another one.
func (t *tx) addSwap(s driver.Swap, done *driver.Swapped) {
	e := s.Entry
	name, args := "swap_update", []any{e.Kind, e.Key, int64(e.At), e.Value, s.Behind, s.Was}
	switch {
	case s.Was == "":
		name, args = "swap_insert", args[:5]
	case s.Gone:
		name, args = "swap_delete", []any{e.Kind, e.Key, s.Was}
	}
	t.add(name, args, func(scan scan) error {
		done.Found = true
		return scan((*int64)(&done.Made), (*int64)(&done.At), new(int64))
	})
	if len(s.Put) > 0 {
		t.add("swap_put", entryArgs(inOrder(s.Put)), nil)
	}
	if len(s.Delete) > 0 {
		t.add("delete_entries", deleteArgs(s.Delete), nil)
	}
}
