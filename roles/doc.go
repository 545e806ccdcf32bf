// Package roles has what a store may do beyond [outmill.Store], which is the whole of a queue. Each
// role is an interface; [outmill.As] finds it in a store, also behind a wrapper. A store has each
// role that its engine supports, and package storetest tests those that it has.
//
//   - [Joins]: fan-in, with the states and the errors of joins.
//   - [Transactor]: transactions without the types of a driver.
//   - [Inbox]: notes of handled messages, for idempotent consumers.
//   - [Sagas]: the states of sagas, and how long finished ones are kept.
//   - [Pauses]: stopping deliveries at run time.
//   - [Repairs]: finding, requeuing and deleting by a filter; dead letters, edits and skips; notes of
//     what operators changed.
//   - [Examiner]: what doctor asks of a database.
//   - [Waker]: a hint that something may be claimable. Polling is always the fallback.
//   - [Idle]: whether there is anything to do at all.
//   - [Members]: only a store that is made of others, such as a tenants.Set, has it.
//
// Programs rarely need this package: joins, inbox, sagas, tenants, monitor and the command outmill
// use it for them. It imports package outmill only.
package roles
