package driver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var _ roles.Examiner = (*Driver)(nil)

// refusesLook are the numbers of the errors by which SQL Server refuses a look at other sessions.
var refusesLook = []int32{262, 297, 300}

// mostSessions bounds the sessions of each kind in a report.
const mostSessions = 10

// Examine looks for missing rights and indexes, and for transactions and lock waits that last too long. The rights are those of Grants
// but for procedures, whatever the tasks. See roles.Examiner.
func (d *Driver) Examine(ctx context.Context, request roles.ExamineRequest) (e roles.Examination, err error) {
	x := examiner{tx: d.on(d.db), request: request, e: &e}
	for _, step := range []func(context.Context) error{x.database, x.rights, x.indexes, x.transactions, x.locks} {
		if err := step(ctx); err != nil {
			return e, err
		}
	}
	d.admission.Examine(&e, d.handlers(), moreConns)
	return e, nil
}

// examiner makes one examination.
type examiner struct {
	*tx
	request roles.ExamineRequest
	e       *roles.Examination
	user    string
	// seesAll says that the user sees each object of the database.
	seesAll bool
}

func (x *examiner) database(ctx context.Context) error {
	return cmp.Or(x.d.checkSchema(ctx, x.tx), x.checkDatabase(ctx),
		x.query(ctx, "examined_user", nil, func(scan scan) error { return scan(&x.user, &x.seesAll) }))
}

func (x *examiner) rights(ctx context.Context) error {
	return x.query(ctx, "lacking_rights", args{"rights": jsonOf(x.d.permissions())}, func(scan scan) error {
		var p permission
		var object *int64
		if err := scan(&p.Name, &p.Class, &p.Permission, &object); err != nil {
			return err
		}
		if object == nil && x.seesAll {
			f := storekit.MissingPart(strings.ToLower(p.Class), p.Name, "Calls that name it fail.", true)
			if !slices.ContainsFunc(x.e.Findings, func(other roles.Finding) bool { return other.Subject == f.Subject }) {
				x.e.Add(f)
			}
			return nil
		}
		on := p.Name
		if p.Class == "TYPE" {
			on = "TYPE::" + on
		}
		x.e.Add(roles.Finding{
			Code: "right_missing", Failure: true, Subject: p.Permission + " ON " + on,
			Text:   fmt.Sprintf("The user %s lacks %s on %s, which the store needs, or somebody has dropped it.", x.user, p.Permission, on),
			Remedy: "Run the statements of Store.Grants for the user's role.",
		})
		return nil
	})
}

// indexNames are those of the schema.
func (d *Driver) indexNames() (all []string, err error) {
	parts, err := sqlkit.Parts(schemaFiles, "schema")
	for _, part := range parts {
		if part.Kind == "index" {
			all = append(all, d.names.index(part.Name))
		}
	}
	return all, err
}

func (x *examiner) indexes(ctx context.Context) error {
	wanted, err := x.d.indexNames()
	if err != nil {
		return err
	}
	usable, err := list(ctx, x.tx, "usable_indexes", args{"name": x.d.config.Schema}, sqlkit.One[string])
	if err != nil {
		return err
	}
	if len(usable) == 0 {
		x.e.Skip("The indexes were not examined, because the user %s sees none: it lacks rights on the tables.", x.user)
		return nil
	}
	for _, name := range wanted {
		if !slices.Contains(usable, name) {
			x.e.Add(storekit.MissingPart("index", name, "Or it is disabled (ALTER INDEX … REBUILD). Calls that name it with FORCESEEK fail.", true))
		}
	}
	return nil
}

// session names a session for people.
func session(id int, program string) string {
	if program == "" {
		return fmt.Sprintf("session %d", id)
	}
	return fmt.Sprintf("session %d (%s)", id, program)
}

// skipped reports a look that the server refuses.
func (x *examiner) skipped(what string, err error) error {
	if err == nil || !slices.Contains(refusesLook, number(err)) {
		return err
	}
	x.e.Skip("%s were not examined, because the user %s lacks VIEW SERVER STATE (on Azure SQL VIEW DATABASE STATE).", what, x.user)
	return nil
}

func (x *examiner) transactions(ctx context.Context) error {
	a := args{"most": mostSessions, "seconds": int64(x.request.OpenTransaction / time.Second)}
	return x.skipped("Transactions of other sessions", x.query(ctx, "old_transactions", a, func(scan scan) error {
		var id int
		var program, status string
		var age int64
		if err := scan(&id, &program, &status, &age); err != nil {
			return err
		}
		open := time.Duration(age) * time.Millisecond
		x.e.Add(roles.Finding{
			Code: "old_transaction", Subject: session(id, program), Since: time.Now().Add(-open),
			Text: fmt.Sprintf("The transaction of %s (%s) has been open for %v. It keeps its locks, and the server keeps old versions of rows and "+
				"its log for it.", session(id, program), status, open.Round(time.Second)),
			Remedy: fmt.Sprintf("Find out why it stays open, and end it: KILL %d;", id),
		})
		return nil
	}))
}

func (x *examiner) locks(ctx context.Context) error {
	a := args{"most": mostSessions, "limit": x.request.LockWait.Milliseconds()}
	return x.skipped("Lock waits", x.query(ctx, "lock_waits", a, func(scan scan) error {
		var id, blocker int
		var program, lock, blocking, status string
		var waited int64
		if err := scan(&id, &program, &lock, &waited, &blocker, &blocking, &status); err != nil {
			return err
		}
		waits := time.Duration(waited) * time.Millisecond
		x.e.Add(roles.Finding{
			Code: "lock_wait", Failure: true, Subject: session(id, program), Since: time.Now().Add(-waits),
			Text: fmt.Sprintf("The %s has waited for %v for a lock (%s) of %s, which is %s.",
				session(id, program), waits.Round(time.Second), lock, session(blocker, blocking), status),
			Remedy: fmt.Sprintf("Find out why that session holds its lock for so long, and end its transaction: KILL %d;", blocker),
		})
		return nil
	}))
}
