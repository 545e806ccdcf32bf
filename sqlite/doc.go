// Package sqlite is the outbox store on SQLite (modernc.org/sqlite, no cgo): the embedded
// default. It implements outmill.Store and roles.Waker.
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
// Open sets synchronous(FULL): in WAL mode NORMAL may lose the last commits when the power
// fails, and an outbox must not lose committed records. It costs one fsync for each commit, so
// append in batches if that matters. With New, the program that opened the handle chooses.
//
// # One writer at a time
//
// SQLite has one writer at a time. The write transactions of one Store wait for each other in the process. If another connection or
// process is writing, the store tries again until Config.BusyTimeout has passed. A caller's own transaction should be an immediate
// one (InTx, or _txlock=immediate in the DSN, as Open sets it). SQLite refuses a write of a deferred transaction that has read
// before, if another connection has written since.
//
// # Time
//
// The database's clock is the clock of the process. SQLite reads it once for each transaction,
// in milliseconds. Processes that share a file share a machine, and so a clock.
//
// # Order
//
// If an ordered claim finds a record behind another one of its key, it holds the record: later claims skip it until its key
// changes, so the cost of a claim does not grow with the backlog of a blocked key. Unordered claims ignore holds. While an owner
// has a lease of any record of a key, claims of other owners get none of the key's records, not even earlier ones.
package sqlite
