// Package chaos is a test: processes of writers, forwarders and subscribers do
// their work while they are killed and stopped, connections are cut, and the
// database's server and Kafka go away and come back. Afterwards each message of a
// transaction that has committed must have been seen by each group, no other one,
// and those of each key in their order, and each join must have ended as it
// should. It runs on PostgreSQL, with rows and with the log, on MongoDB, and on SQLite,
// where processes share a file and only they are killed and stopped; on SQL Server where
// OUTMILL_TEST_SQLSERVER_URL names one, which has not happened yet.
//
//	go test -v ./internal/chaos
//	go test -v ./internal/chaos -run whatever_breaks/mongo
//
// What happens, and how long the pauses are, follows from a seed, which is
// printed; when exactly it happens to the others does not.
// OUTMILL_CHAOS_SEED repeats one, OUTMILL_CHAOS_DURATION says how long it goes on
// on each of them: 2m on PostgreSQL with rows, 1m on its log, on MongoDB and on SQLite unless it
// is set. Without either, and without OUTMILL_TEST_ALL=1, the chaos is left out. With -artifacts the logs of all processes are kept.
//
// # What is judged
//
// The truth is the ledger, a table or collection of the application's own, which
// is written by the same transactions as the messages. A writer that does not
// hear how its commit has gone, or is killed, promises nothing. Lost is what it has and a
// group has not seen; phantom is what a group has seen and it has not;
// forgotten is what it has not although the writer was told of the commit.
//
// Delivery is at least once, so a message may be seen several times, and late:
// a process that was stopped in the middle of a handling finishes it when it
// wakes up, and cannot know that its lease is over. Order is therefore that of
// first sightings, and there no inversion is allowed at all: a message is first
// handed out when the one before it in its key was acked, that is seen, or when
// the same process holds that one too and handles it before. What wakes up late
// can only repeat what its successor has seen by then, or what it sees before
// its later ones.
//
// Of joins there is a ledger too. Each has ended, by what became of its steps,
// with counters that are those of its members, and is followed by one message,
// which nobody reads, so that a second one would be there.
package chaos
