package main

import (
	"errors"
	"testing"
)

func TestTheQuickstartLosesNothingAndShowsNothingThatRolledBack(t *testing.T) {
	t.Parallel()
	sum, err := run(t.Context(), options{orders: 600})
	if err != nil {
		t.Fatal(err)
	}
	// Every seventh cart of 20, from the fourth on, is declined: 4 of 30.
	want := summary{committed: 520, rolledBack: 80, handled: 520, forwarded: 520}
	sum.duplicated = 0
	if sum != want {
		t.Fatalf("got %+v, want %+v", sum, want)
	}
}

func TestTheSummaryHasTheFormThatScriptsRead(t *testing.T) {
	t.Parallel()
	sum := summary{committed: 1, rolledBack: 2, handled: 3, forwarded: 4, lost: 5, duplicated: 6}
	const want = "committed=1 rolled_back=2 handled=3 forwarded=4 lost=5 duplicated=6"
	if got := sum.String(); got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func TestTheAuditNoticesWhatGoesWrong(t *testing.T) {
	t.Parallel()
	everythingRight := func(a *audit) {
		a.committed([]order{{ID: 0}})
		a.rolledBack([]order{{ID: 1}})
		a.handled(order{ID: 0}, nil)
		a.forwarded(order{ID: 0}, nil)
		a.allPlaced()
	}
	cases := map[string]struct {
		happens func(*audit)
		ok      bool
	}{
		"nothing is wrong":                 {everythingRight, true},
		"a duplicate alone is no failure":  {func(a *audit) { everythingRight(a); a.handled(order{ID: 0}, nil) }, true},
		"a committed order is not handled": {func(a *audit) { a.committed([]order{{ID: 0}}); a.forwarded(order{ID: 0}, nil) }, false},
		"a committed order is not in Kafka": {
			func(a *audit) { a.committed([]order{{ID: 0}}); a.handled(order{ID: 0}, nil) }, false},
		"a rolled back order is handled":  {func(a *audit) { everythingRight(a); a.handled(order{ID: 1}, nil) }, false},
		"a rolled back order is in Kafka": {func(a *audit) { everythingRight(a); a.forwarded(order{ID: 1}, nil) }, false},
		"a message is no order":           {func(a *audit) { everythingRight(a); a.forwarded(order{}, errors.New("not JSON")) }, false},
		"an order is not one of this run": {func(a *audit) { everythingRight(a); a.forwarded(order{ID: 99}, nil) }, false},
		"an order number makes no sense":  {func(a *audit) { everythingRight(a); a.handled(order{ID: -1}, nil) }, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAudit(2)
			c.happens(a)
			if got := a.summary().ok(); got != c.ok {
				t.Fatalf("ok is %t, want %t: %+v", got, c.ok, a.summary())
			}
		})
	}
}

func TestTheQuickstartSaysWhereItLookedForABroker(t *testing.T) {
	t.Parallel()
	_, err := run(t.Context(), options{orders: 1, kafka: "127.0.0.1:1"})
	if err == nil {
		t.Fatal("want an error: nothing listens there")
	}
	t.Log(err)
}
