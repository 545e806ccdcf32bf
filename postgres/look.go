package postgres

import (
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// A reader that has nothing to do looks once or twice a second, so a look is one statement where
// the log needs no search: of named topics, and while the log is at rest. It needs no safePath,
// because it names the schema of each type, function and operator.

// dueCall calls a function of the schema: see 0001_outbox.sql.
const dueCall = `SELECT topic, due, unrouted, pauses FROM {p:due}($1::pg_catalog.text, $2::pg_catalog.text[], $3::pg_catalog.text,
	$4::pg_catalog.text, $5::pg_catalog.bool)`

const (
	sqlDue = dueCall

	// sqlLookNamed also looks into the lines of the topics in the log.
	sqlLookNamed = `SELECT t, true, false, NULL::pg_catalog.int8, true
	FROM {p:log_due}($6::pg_catalog.text, $7::pg_catalog.text[], $8::pg_catalog.int8[]) AS t
UNION ALL SELECT d.*, false FROM (` + dueCall + `) AS d`

	// sqlLookAtRest also reads the place of the sequence.
	sqlLookAtRest = `SELECT NULL::pg_catalog.text, false, false, s.place, pg_catalog.pg_postmaster_start_time() FROM ` + sequenceNow + ` AS s
UNION ALL SELECT d.*, NULL::pg_catalog.timestamptz FROM (` + dueCall + `) AS d`
)

// dueRow takes a row of the function due. topic nil has the state of the store instead of a topic.
type dueRow func(topic *string, due, unrouted bool, pauses *int64)

// look is the step that calls the function due.
func (s *Store) look(req outmill.ClaimRequest, named []string, row dueRow) step {
	// Held records matter only to claims without an order and to claims of whole topics. Claims
	// by key read the lanes instead.
	heldToo := req.Order != outmill.OrderKey
	return step{
		template: sqlDue, bare: true,
		args: []any{req.Group, named, req.Owner.String(), storekit.IgnoredBlocker(req.KeyPolicy), heldToo},
		row: func(scan func(...any) error) error {
			var topic *string
			var due, unrouted bool
			var pauses *int64
			err := scan(&topic, &due, &unrouted, &pauses)
			if err == nil {
				row(topic, due, unrouted, pauses)
			}
			return err
		},
	}
}

// lookNamed is look together with the lines of the topics in the log.
func (s *Store) lookNamed(req outmill.ClaimRequest, named []string, row dueRow, found func(topic string)) step {
	one := s.look(req, named, row)
	one.template = sqlLookNamed
	one.args = append(one.args, req.Group, named, linesOf(req.Group, named))
	one.row = func(scan func(...any) error) error {
		var topic *string
		var due, unrouted, logged bool
		var pauses *int64
		if err := scan(&topic, &due, &unrouted, &pauses, &logged); err != nil {
			return err
		}
		if logged {
			found(*topic)
		} else {
			row(topic, due, unrouted, pauses)
		}
		return nil
	}
	return one
}

// lookWhileAtRest is look together with the place of the sequence, while the log is at rest.
func (s *Store) lookWhileAtRest(req outmill.ClaimRequest, row dueRow, many *logLook) step {
	one := s.look(req, nil, row)
	one.template = sqlLookAtRest
	many.place = rest{}
	one.row = func(scan func(...any) error) error {
		var topic *string
		var due, unrouted bool
		var number *int64
		var since *time.Time
		if err := scan(&topic, &due, &unrouted, &number, &since); err != nil {
			return err
		}
		if since != nil {
			many.place.place, many.place.since = *number, *since
		} else {
			row(topic, due, unrouted, number)
		}
		return nil
	}
	return one
}

func linesOf(group string, topics []string) []int64 {
	var lines []int64
	for _, topic := range topics {
		lines = append(lines, lineOf(group, topic))
	}
	return lines
}
