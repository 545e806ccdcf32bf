// Package sqlkit is what stores in SQL databases share beyond package storekit: the
// transactions that users pass, migrations in versioned files, sagas in one table, and the
// texts and times of columns.
//
//   - Transactions: [WithTx] and [TxFrom] carry the user's transaction in a context,
//     [TxFromOr] and [Adopt] find one that another library has put there, [ResolveTx]
//     finds the transaction that a value wraps, [Handle] runs statements in it, and
//     [TxEnded] marks the error of one that is over.
//   - Schema: [LoadMigrations] reads the files, [Statements] lists their statements.
//   - Sagas: [SagaEngine] has the calls of storekit.Sagas, on a [SagaStore].
//   - Columns: [Text], [OrNull], [Micros] and [CeilMicros].
package sqlkit
