// Package chaos is a test. Processes of writers, forwarders and subscribers work
// while it kills and stops them, cuts connections, and takes the database's server
// and Kafka away and back. Afterwards each group must have seen each message of a
// committed transaction and no other message, the messages of each key must have come
// in their order, and each join must have the expected end. The test runs on
// PostgreSQL, MongoDB, MariaDB, and SQLite, where the processes share a file and the
// test only kills and stops processes. It runs on SQL Server if
// OUTMILL_TEST_SQLSERVER_URL names a server, which has not been done yet.
//
//	go test -v ./internal/chaos
//	go test -v ./internal/chaos -run /whatever_breaks/mongo
//
// A seed decides the faults and the lengths of the pauses, but not the exact moment
// at which a fault meets the other processes. The test prints the seed.
// OUTMILL_CHAOS_SEED repeats a seed. OUTMILL_CHAOS_DURATION sets the duration on each
// engine; by default it is 2m on PostgreSQL, 25s on SQL Server, and 1m on the others. The test is
// skipped if neither of the two is set and OUTMILL_TEST_ALL is not 1. With -artifacts the
// logs of all processes are kept.
//
// # What the test checks
//
// Each transaction writes its messages also to the ledger, a table or collection of the
// application. The test compares the ledger with the messages that each group has seen:
//
//   - lost: a message is in the ledger, and a group has not seen it;
//   - phantom: a group has seen a message that is not in the ledger;
//   - forgotten: a writer was told that its commit succeeded, and the ledger does not
//     have it. A writer that is killed, or gets no answer to its commit, counts for nothing.
//
// Delivery is at least once, so a group may see a message several times, and late: a
// process that was stopped while it handled a message finishes when it continues, and
// cannot know that its lease has ended. So the test compares the order of the first
// sightings of the messages of a key, and allows no inversion. The reason: a message is
// first handed out after the message before it in its key was acked, and therefore seen;
// or the same process has both, and handles the earlier one first. A process that
// continues late can only repeat messages that the next holder has seen by then, or see a
// message before its later ones.
//
// Two groups handle each message in a transaction: one by an inbox, one by sagas, which count the messages of each
// key. What their transactions publish must be there once for each message of the ledger.
//
// An operator works on the records of one more group, whose handlers sometimes fail for good and park a key: it pauses
// and resumes keys, deletes records of any status, and edits, requeues and skips dead ones. That group must have seen
// each message that the operator has not tried to remove, in order. A worker that was stopped with a message that the
// operator removed may see it later than the messages behind it, so these messages count for nothing. Three other
// groups register, read for some seconds and are dropped, again and again. They may see no message that is not in the
// ledger, and no key out of order.
//
// There is also a ledger of joins. Each join must have ended as the results of its steps
// require, with counters that agree with its steps, and one message must follow it. No
// group reads these messages, so the test would find a second one.
package chaos
