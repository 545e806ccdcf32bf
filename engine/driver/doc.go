// Package driver is the contract between package engine and a database.
//
// A driver keeps four things:
//
//   - rows: records without their content. Every column that a rule reads is a field of Row.
//   - content: payload, metadata and the texts of a record that no rule reads. It is read last, and only
//     when it is asked for.
//   - notes: the reasons why rows are held. There is a note for each name that rows are held under.
//   - entries: small things with a kind, a key and a time, such as registrations, workers, pauses, dedup
//     keys, joins and their steps, notes of handled messages, and sagas.
//
// A driver finds rows along the indexes of Index, reads a page of a line in one moment, and writes changed
// rows back if nobody else has changed them. It runs that in transactions of its own, or in the caller's.
//
// A row or a content that cannot be decoded is never an error: somebody has changed it by hand, or a disk has. The
// driver returns it as Broken, with its ID and what can be read, wherever a search meets it by the columns that can.
// Otherwise it would stop its topic, and no operator could delete it. Apply gives such a row readable state again.
//
// A driver decides nothing about records: package engine does, by the methods of one file (engine/row.go).
//
// Package memdriver is the reference.
package driver
