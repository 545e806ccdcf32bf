// Package storekit is what authors of stores and of publishers need, and users do not.
// docs/stores.md explains how to write a store, and package storetest tests one. Package
// storekit/sqlkit has what stores in SQL databases share beyond this package.
//
// # Checks, before anything is written
//
//   - [CheckRecords], [RowLimits]: the records of an Append.
//   - [CheckClaim], [CheckRegistrations], [CheckGroup], [CheckWorker], [CheckTopic],
//     [CheckTopics], [CheckList], [CheckStats], [CheckExtend], [CheckLimit]: what else
//     callers pass.
//   - [GroupOf], [WithGroups]: the name of a group that the caller left empty.
//   - [CheckConfig], [InvalidConfig]: a Config.
//
// # Append
//
//   - [Appending]: ids, duplicates within one call, metadata as JSON, what Append reports.
//   - [RoutingTable], [KnownRoutes]: the groups that read a topic.
//   - [ParseMetadata], [StatusOf]: metadata and status of a record that was read.
//
// # Claim and settle
//
//   - [DueTopics], [ServeDue], [ServeTopics], [TopicRotation], [BusyTopics]: topics in turn, and
//     a fair share for each.
//   - [OrderedScan]: the decisions of an ordered claim, with [KeyState], [Blocker],
//     [LeasedInOrder], and [BatchSize] and [Moment], which bound its work.
//   - [Bare], [LeasesOf], [ForAbandon], [ForSnooze], [ForFail], [SomeAtOnce]: what a settling
//     call acts on. [CleanError] makes an error's text storable, and
//     [ParkedError] is the text of records that were parked.
//
// # Groups
//
//   - [RegistrationExpiry]: ends registrations in steps.
//   - [StoredRegistration], [StoredWorker], [EndedGroup]: what a store keeps of a group.
//     [OrEmpty] is for the lists of a selection.
//
// # Joins
//
//   - [Joins] is the role. [JoinEngine] keeps it, over a [JoinStore] and a [JoinTx] with
//     the store's queries. [HurryJoins] follows each commit that may have decided joins.
//     [CheckSteps], [LateStep], [StepOutcome] and [StepCounts] are for appends and settlements,
//     [JoinsText] and [ParseJoins] for a column.
//
// # Life of a store
//
//   - [OpenURL], [URLParameters]: the settings of a store in its URL.
//   - [Lifecycle]: open, closed, schema checked.
//   - [SchemaVersion], [CompatibleWith], [CheckSchemaVersion]: the version of the schema.
//   - [Log]: the lines that all stores log.
//   - [Waker] is the role; [Notifier] and [TopicSet] keep it within one process.
//   - [ContextWithTx], [TxFromContext]: the user's transaction in a context. [TxLocks] keeps
//     concurrent uses of one apart.
//   - [Repeat], [Waits], [Pause]: attempts, and the pauses between them.
//
// # Publishers and readers
//
//   - [RecordMaker], [RecordOf], [MessageOf]: messages as records, and back.
//   - [BatchPublisher], [PublishError]: what a forwarder sends.
//   - [Decide]: what a retry policy says about a record whose handling failed.
//   - [NewHandling], [LeaseClock]: what outmill.Delivery tells a handler.
package storekit
