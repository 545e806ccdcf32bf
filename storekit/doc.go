// Package storekit is for authors of stores and of publishers; users do not need it.
// docs/stores.md explains how to write a store, and package storetest tests a store.
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
// # Append
//
//   - [Appending]: ids, duplicates within one call, metadata as JSON, the fields that
//     Append sets.
//   - [RoutingTable], [KnownRoutes]: the groups that read a topic.
//   - [ParseMetadata], [StatusOf]: metadata and status of a record from the database.
//
// # Claim and settle
//
//   - [DueTopics], [ServeDue], [ServeTopics], [TopicRotation], [BusyTopics]: topics in turn, and
//     a fair share for each.
//   - [OrderedScan]: the decisions of an ordered claim, with [KeyState], [Blocker],
//     [LeasedInOrder], and [BatchSize] and [Moment], which limit its work.
//   - [Bare], [LeasesOf], [ForAbandon], [ForSnooze], [ForFail], [SomeAtOnce]: the arguments
//     of settling calls. [CleanError] makes an error's text storable, and [ParkedError] is
//     the text of records that were parked.
//
// # Groups
//
//   - [RegistrationExpiry]: ends registrations in steps.
//   - [StoredRegistration], [StoredWorker], [EndedGroup]: a group as a store keeps it.
//     [OrEmpty] is for the lists of a selection.
//
// # Joins
//
//   - [roles.Joins] is the role. [JoinEngine] implements it with the store's queries in a
//     [JoinStore] and a [JoinTx]. A store calls [HurryJoins] after each commit that may
//     have decided joins. [CheckSteps], [LateStep], [StepOutcome] and [StepCounts] are for
//     appends and settlements, [JoinsText] and [ParseJoins] for a column.
//
// # Life of a store
//
//   - [OpenURL], [URLParameters]: the settings of a store in its URL, and [UnknownParameterError] for a misspelt one.
//   - [Lifecycle]: open, closed, schema checked.
//   - [SchemaVersion], [CompatibleWith], [CheckSchemaVersion]: the version of the schema.
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
//   - [WaitingReader]: the role of a store that shows which records wait; [WaitingOf] collects them.
//   - [Decide]: the verdict of a retry policy on a failed handling.
//   - [NewHandling], [LeaseClock]: the source of outmill.Delivery.
package storekit
