// Package janitor keeps stores small and tidy. A janitor
//
//   - makes records due again whose lease has ended, because their worker died,
//   - makes records dead that have expired,
//   - ends registrations that nobody renews, and deletes their undelivered records,
//   - deletes what is past its retention: processed records, joins that have ended, notes of
//     an inbox, finished sagas, entries of the audit, dedup keys,
//   - calls the store's own maintenance ([outmill.Janitor].Maintain).
//
// Every subscriber and forwarder runs a janitor of its store, unless its UpkeepInterval is
// negative. A program needs one of its own only where no process subscribes or forwards, or
// where these leave the work to it:
//
//	j, err := janitor.New(store, janitor.Config{}, logger)
//	...
//	err = j.Run(ctx) // or, in a cron job: report, err := j.RunOnce(ctx)
//
// # Several janitors
//
// Any number of janitors may work on one store, in one process and in many. Their rounds begin
// at random times, so usually one of them finds the work and the others find none. Those that
// meet a backlog at the same time share it, or leave it to one of them: nothing is done or
// counted twice. For [outmill.Janitor].Maintain the stores give the turn to one process at a
// time.
//
// # Load
//
// All work is done in batches of Config.BatchSize. Each batch is a transaction of its own (or
// a few), so writers get in between batches. After a full batch the janitor pauses so long
// that it uses Config.Share of the time, a fifth by default. The kinds of work take turns, so
// a million records that wait for their deletion do not hold up the others.
//
// # Retention
//
// The store's configuration, and that of the inbox and of the sagas, says how long something
// is kept, not the janitor's: see docs/guarantees.md.
package janitor
