// Package sqlite is the outbox store on SQLite (modernc.org/sqlite, no cgo):
// the embedded default. It implements outmill.Store and storekit.Waker.
//
//	store, err := sqlite.Open(ctx, "orders.db", sqlite.Config{}, logger)
//	err = store.Ensure(ctx)
//	err = store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
//		if _, err := tx.ExecContext(ctx, "INSERT INTO orders …"); err != nil {
//			return err
//		}
//		return pub.WithContext(ctx).Publish("orders", msg)
//	})
//
// # Durability
//
// Open sets synchronous(FULL): in WAL mode NORMAL may lose the last commits
// when the power fails, and an outbox must not lose what was committed. It
// costs one fsync for each commit, so append in batches where it matters. With
// New the program that opened the handle has the choice.
//
// # One writer at a time
//
// SQLite has one writer at a time. The write transactions of one Store queue
// in the process; a database that another connection or process is writing to
// is tried again until Config.BusyTimeout has passed. A caller's own
// transaction should be an immediate one (InTx, or _txlock=immediate in the
// DSN, as Open sets it): a deferred transaction that has read before it writes
// is refused by SQLite as soon as anybody else wrote in between.
//
// # Time
//
// The database's clock is that of the process, read by SQLite once for each
// transaction, in milliseconds. Processes that share a file share a machine, and
// so a clock.
//
// # Order
//
// A record that an ordered claim finds behind another one of its key is held:
// claims no longer look at it until something about its key changes, so the
// cost of a claim does not grow with the backlog of a blocked key. Unordered
// claims take no notice. While an owner holds any record of a key, claims of
// other owners get none of its records, earlier ones neither.
package sqlite
