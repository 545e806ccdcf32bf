// Package engine has every rule of a store once: what an append writes, what a claim takes, what becomes of a
// record when it is settled, and what operators and janitors see and change. It runs on any driver.DB.
//
// A store is a driver and one file that makes an Engine of it. Read row.go first: its methods are the table of
// states in docs/store-rules.md. Nothing else changes the state of a row. Then follow a message: append.go,
// claim.go with claim_free.go, claim_by_key.go and claim_by_topic.go, and settle.go. blocked_keys.go has the
// life of a note, which is why a claim does not meet the rows behind a blocked key again and again.
// The other roles stand beside that: joins.go with join_calls.go, join_tx.go and steps.go, find.go and
// dead_letters.go, inbox.go, sagas.go, transact.go, rest.go and examine.go. They keep entries, and no tables of their own.
//
// Each call is one or a few transactions of bounded size. Within a transaction the engine reads rows, changes
// them in memory, and writes them with one Apply. A row that somebody else has changed since it was read is
// lost: it is not written, and the engine treats it as if it had not met it. That is the only concurrency that
// the rules know.
package engine
