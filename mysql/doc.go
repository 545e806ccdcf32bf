// Package mysql is the outbox store on MariaDB 10.6 or later, and on MySQL 8.0 or later, with go-sql-driver/mysql and InnoDB. It implements
// outmill.Store and all roles but roles.Members.
//
//	store, err := mysql.Open(ctx, "mysql://user:password@host:3306/orders", mysql.Config{}, logger)
//	err = store.Ensure(ctx)
//	err = store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
//		if _, err := tx.ExecContext(ctx, "INSERT INTO orders …"); err != nil {
//			return err
//		}
//		return pub.WithContext(ctx).Publish("orders", msg)
//	})
//
// The tests run on MariaDB. MySQL 8 is supported by its documentation only: see docs/mysql.md.
//
// # Transactions
//
// The store's own transactions run at READ COMMITTED, and are repeated after a deadlock, a lock wait or a lost connection. A transaction
// of yours has the level that you begin it with, which is REPEATABLE READ unless you say so. At that level an Append knows the groups
// that were registered when your transaction first read something. Begin it with sql.LevelReadCommitted, as InTx does, if a group that
// registers at that moment must get the message.
//
// Some errors end a transaction, such as a deadlock (1213), and leave the session in autocommit: what follows would be committed by itself.
// Each call with WithTx proves first that the transaction still exists. If it does not, the call returns outmill.ErrInvalidTx, and writes
// nothing.
//
// # Rights
//
// A program that publishes and reads needs SELECT, INSERT, UPDATE and DELETE on the tables whose names begin with Config.TablePrefix.
// Ensure also needs CREATE, INDEX, CREATE VIEW and, for the view, SELECT.
package mysql
