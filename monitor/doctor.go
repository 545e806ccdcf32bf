package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// Doctor looks for everything that may keep messages from being delivered: a part of the schema
// or a right that is missing, a session that slows the others down, a topic or a group without a
// consumer, records that are late, dead, cannot be read, fail again and again or have an ended lease
// that nobody takes, a broker that does not answer. It is for an operator who asks now and then; [Health] is
// for probes.
//
// Doctor only reads. It counts records as Stats does and reads the catalog of the database
// (roles.Examiner), so its cost does not grow with the backlog. The report has the failures
// first. What could not be checked is in Report.Unchecked. Texts may name hosts, users and
// sessions of the database, keys of records and error texts of handlers, and have no payload and no
// credential.
//
// The errors are ErrInvalidConfig, the error of ctx, and that of a store that does not answer at
// all.
func Doctor(ctx context.Context, store outmill.Inspector, config DoctorConfig) (Report, error) {
	if outmill.IsNil(store) {
		return Report{}, storekit.InvalidConfig("Doctor: the store is nil: pass an open store")
	}
	if err := config.check(); err != nil {
		return Report{}, err
	}
	config = config.withDefaults()
	limited, cancel := context.WithTimeout(ctx, config.Timeout+config.Watch)
	defer cancel()
	d := &doctor{store: store, config: config, report: Report{Store: config.Name, Problems: []Problem{}}}
	d.publishers()
	d.broker(limited)
	if err := errors.Join(d.database(limited), ctx.Err()); err != nil {
		return Report{}, fmt.Errorf("outmill: doctor: %w", err)
	}
	slices.SortStableFunc(d.report.Problems, func(a, b Problem) int { return cmp.Compare(a.rank(), b.rank()) })
	d.report.Status = statusOf(d.report.Problems)
	return d.report, nil
}

// doctor makes one report.
type doctor struct {
	store  outmill.Inspector
	config DoctorConfig
	report Report
}

func (d *doctor) add(problems ...Problem) { d.report.Problems = append(d.report.Problems, problems...) }

func (d *doctor) skip(format string, args ...any) {
	d.report.Unchecked = append(d.report.Unchecked, fmt.Sprintf(format, args...))
}

func (p Problem) rank() int {
	if p.Severity == Failure {
		return 0
	}
	return 1
}

func (d *doctor) publishers() {
	for _, publisher := range d.config.Publishers {
		d.add(CheckPublisher(publisher)...)
	}
}

func (d *doctor) broker(ctx context.Context) {
	if d.config.Broker == nil {
		return
	}
	if err := d.config.Broker(ctx); err != nil {
		d.add(Problem{
			Kind: "broker_unreachable", Severity: Failure, Err: err, Text: fmt.Sprintf("The broker does not answer: %v", err),
			Remedy: "Check that the broker runs, that the network reaches it and that the login is right.",
		})
	}
}

// database checks the database and its records. If one of both works, the failure of the other
// is part of the report.
func (d *doctor) database(ctx context.Context) error {
	examined, err := d.examine(ctx)
	if problem, is := schemaProblem(err); is {
		d.add(problem)
		return nil
	}
	if err != nil {
		err = fmt.Errorf("examine the database: %w", err)
	}
	countErr := d.records(ctx)
	if problem, is := schemaProblem(countErr); is {
		if !slices.ContainsFunc(d.report.Problems, func(p Problem) bool { return p.Kind == problem.Kind }) {
			d.add(problem)
		}
		return nil
	}
	switch {
	case countErr == nil && err == nil:
	case countErr == nil:
		d.skip("The database was not examined: %v", err)
	case examined:
		d.skip("The records were not counted: %v", countErr)
	default:
		return errors.Join(err, countErr)
	}
	return nil
}

// examine reports whether the database has answered.
func (d *doctor) examine(ctx context.Context) (bool, error) {
	examiner, ok := outmill.As[roles.Examiner](d.store)
	if !ok {
		d.skip("The database was not examined: the store lacks the role roles.Examiner.")
		return false, nil
	}
	found, err := examiner.Examine(ctx, d.config.request())
	for _, f := range found.Findings {
		d.add(problemFrom(f))
	}
	d.report.Unchecked = append(d.report.Unchecked, found.Unchecked...)
	return err == nil, err
}
