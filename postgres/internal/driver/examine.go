package driver

import (
	"context"

	"github.com/outmill/outmill/postgres/internal/conns"
	"github.com/outmill/outmill/postgres/internal/doctor"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var _ roles.Examiner = (*Driver)(nil)

// sqlServer is whether the server accepts writes, and how full the queue of notifications is.
const sqlServer = `SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off', pg_notification_queue_usage()`

// Examine looks for missing parts of the schema and rights, for a sequence that does not count one by one, for transactions and lock
// waits that last too long, for replication slots that nobody reads, and for a full queue of notifications. See roles.Examiner.
func (d *Driver) Examine(ctx context.Context, request roles.ExamineRequest) (e roles.Examination, err error) {
	// A user without the right to read the version lacks others, too, which the report names.
	if err := d.checkVersion(ctx); err != nil && code(err) != codeNoRight {
		return e, err
	}
	templates, err := d.templates()
	if err != nil {
		return e, err
	}
	parts := sqlkit.PartsOf(templates)
	rights, reserved := rightsIn(templates, parts)
	err = d.query(ctx, sqlServer, nil, func(scan func(...any) error) error {
		var writable bool
		var usage float64
		if err := scan(&writable, &usage); err != nil {
			return err
		}
		if !writable {
			e.Add(storekit.StoreFinding(storekit.ErrReadOnly))
		}
		doctor.AddQueue(request, usage, &e)
		return nil
	})
	if err != nil {
		return e, err
	}
	database := doctor.Database{
		Query: d.query, Schema: d.config.Schema, Prefix: d.config.Prefix, Parts: parts, Rights: rights, Sequence: "records_seq_seq",
		Reserved: reserved,
	}
	if err := database.Examine(ctx, request, &e); err != nil {
		return e, err
	}
	d.conns.Examine(&e)
	return e, nil
}

// CheckWrites asks whether the server accepts writes again, after it has refused one. See storekit.WriteChecker.
func (d *Driver) CheckWrites(ctx context.Context) error {
	return d.conns.CheckWrites(func() (writable bool, err error) {
		err = d.query(ctx, conns.SQLWritable, nil, func(scan func(...any) error) error { return scan(&writable) })
		return writable, err
	})
}

func (d *Driver) checkVersion(ctx context.Context) error {
	version, err := d.readVersion(ctx)
	if err != nil {
		return err
	}
	return version.Check(schemaVersion)
}

// query calls row for each row of a statement, which has no transaction around it.
func (d *Driver) query(ctx context.Context, text string, args []any, row func(scan func(into ...any) error) error) error {
	// Without a transaction the settings hold for the statements that are sent with them.
	return d.send(ctx, row, step{text: d.names.text("settings", false), args: []any{true}}, step{text: text, args: args})
}

// send calls row for each row of the last statement. The statements have no transaction around them.
func (d *Driver) send(ctx context.Context, row func(scan func(into ...any) error) error, steps ...step) error {
	own, err := d.begin(ctx)
	if err != nil {
		return err
	}
	t := &tx{d: d, to: onPgx{own.conn}}
	steps[len(steps)-1].row = func(scan scan) error { return row(scan) }
	for _, one := range steps {
		t.addStep(one)
	}
	err = t.flush(ctx)
	own.end(ctx, err)
	return err
}
