// Package storekit is for authors of stores and of publishers; users do not need it.
// docs/stores.md explains how to write a driver, and package storetest tests a store.
// Package storekit/sqlkit has the common code of stores in SQL databases.
//
// # Checks, before anything is written
//
//   - [CheckRecords], [RowLimits]: the records of an Append.
//   - [CheckClaim], [CheckRegistrations], [CheckGroup], [CheckWorker], [CheckTopic],
//     [CheckTopics], [CheckList], [CheckStats], [CheckExtend], [CheckLimit]: other
//     arguments of callers.
//   - [GroupOf], [WithGroups]: the name of a group that the caller left empty.
//   - [CheckConfig], [InvalidConfig]: a Config.
//
// # What package engine uses
//
//   - [Appending]: ids, duplicates within one call, metadata as JSON, the fields that
//     Append sets.
//   - [RoutingTable]: the groups that read a topic. [RegistrationExpiry] ends registrations in steps.
//   - [JoinState]: when a join is decided.
//   - [BatchSize] limits the work of one transaction.
//
// # What drivers use
//
//   - [RowLimits]: what a row can hold. [ParseMetadata]: metadata of a record from the database.
//   - [CleanError] makes an error's text storable. [JoinsText] and [ParseJoins] are for a column.
//
// # Life of a store
//
//   - [OpenURL], [URLParameters]: the settings of a store in its URL, and [UnknownParameterError] for a misspelt one.
//   - [Lifecycle]: open, closed, schema checked.
//   - [SchemaVersion], [CheckSchemaVersion]: the version of the schema.
//   - [Log]: the lines that all stores log.
//   - [roles.Waker] is the role; [Notifier] and [TopicSet] implement it within one process.
//   - [ContextWithTx], [TxFromContext]: the user's transaction in a context. [TxLocks]
//     serialises concurrent uses of a transaction.
//   - [Repeat], [RepeatFor], [Waits], [Pause]: attempts, and the pauses between them.
//   - [AfterCommit]: what runs after the commit of a transaction.
//
// # Publishers and readers
//
//   - [RecordMaker], [RecordOf], [MessageOf]: messages as records, and back.
//   - [BatchPublisher], [PublishError]: publishing in batches.
//   - [WaitingReader]: the role of a store that shows which records wait.
//   - [Decide]: the verdict of a retry policy on a failed handling.
//   - [NewHandling], [LeaseClock]: the source of outmill.Delivery.
package storekit
