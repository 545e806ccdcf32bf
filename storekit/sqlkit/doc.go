// Package sqlkit has the common code of stores in SQL databases, in addition to package
// storekit: the transactions that users pass, migrations in versioned files, the
// columns of rows, and the texts and times of columns.
//
//   - Transactions: [WithTx] and [TxFrom] carry the user's transaction in a context,
//     [TxFromOr] and [Adopt] find one that another library has put into the context,
//     [ResolveTx] finds the transaction that a value wraps, [Handle] runs statements in it,
//     and [TxEnded] marks the error of a transaction that has ended.
//   - Schema: [LoadMigrations] reads the files, [Statements] lists their statements.
//   - Drivers of package engine: [RowInto], [ID] and [SetContent] read the columns of rows.
//   - Columns: [Text], [OrNull] and [CeilMicros].
package sqlkit
