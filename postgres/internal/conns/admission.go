package conns

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"weak"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// admissions are those of the pools of this process. Stores that share a pool share its connections.
var admissions sync.Map // of the weak.Pointer of a pool to *storekit.Admission

func admissionTo[T any](pool *T) *storekit.Admission {
	key := weak.Make(pool)
	found, known := admissions.LoadOrStore(key, &storekit.Admission{})
	if !known {
		runtime.AddCleanup(pool, func(key weak.Pointer[T]) { admissions.Delete(key) }, key)
	}
	return found.(*storekit.Admission)
}

// Admit runs fn when the pool has a connection for one more transaction of a handler. One connection stays for claims and leases. If
// handlers wait for connections it logs that once.
func (c *Conns) Admit(ctx context.Context, log *storekit.Log, fn func() error) error {
	return c.admission.Run(ctx, c.handlers(), func() { c.tellWaiting(log) }, fn)
}

// handlers is how many transactions of handlers are admitted at a time. The user may change the size of a pool of database/sql.
func (c *Conns) handlers() int { return storekit.HandlersOf(c.Most()) }

// morePool is the remedy for a pool that is too small.
func (c *Conns) morePool() string {
	if _, ok := c.pool.(sqlPool); ok {
		return "Raise SetMaxOpenConns of your *sql.DB"
	}
	return "Raise pool_max_conns in the URL, or MaxConns of your pgxpool.Config"
}

func (c *Conns) tellWaiting(log *storekit.Log) {
	log.Info("More handlers want a transaction than the pool has connections for, so they wait for each other; one connection "+
		"is kept for claims and leases. "+c.morePool()+", or lower subscriber.Config.MaxInFlight",
		watermill.LogFields{"connections": c.handlers() + 1})
}

// idleClosed is the number of connections from which a pool that closes them is a finding.
const idleClosed = 100

// Examine looks whether handlers wait for connections, and whether database/sql closes connections that the store could use again.
func (c *Conns) Examine(e *roles.Examination) {
	c.admission.Examine(e, c.handlers(), c.morePool())
	own, ok := c.pool.(sqlPool)
	if !ok {
		return
	}
	if closed := own.db.Stats().MaxIdleClosed; closed >= idleClosed {
		e.Add(roles.Finding{
			Code: "pool_idle",
			Text: fmt.Sprintf("The *sql.DB has closed %d connections since its start because it keeps fewer idle ones than work at a time, so "+
				"calls wait for new connections.", closed),
			Remedy: "Call SetMaxIdleConns of the *sql.DB with the number of SetMaxOpenConns.",
		})
	}
}
