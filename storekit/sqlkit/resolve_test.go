package sqlkit_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// native is the transaction of a driver; NativeTx is its interface.
type (
	NativeTx interface{ Native() }
	native   struct{ number int }
)

func (*native) Native() {}

// NativePool is the pool of a driver.
type NativePool struct{}

var natives = sqlkit.Driver{
	IsTx: func(tx any) bool { _, ok := tx.(NativeTx); return ok },
	NoTx: func(tx any) string {
		if _, ok := tx.(*NativePool); ok {
			return "it is a native pool"
		}
		return ""
	},
}

// A copy of the Tx of watermill-sql v4, which this module cannot require. Its methods that
// run statements return types of that package, so it is not a Handle.
type (
	v4Result interface{ RowsAffected() (int64, error) }
	v4Rows   interface{ Next() bool }
	v4Tx     interface {
		ExecContext(ctx context.Context, query string, args ...any) (v4Result, error)
		QueryContext(ctx context.Context, query string, args ...any) (v4Rows, error)
		Rollback() error
		Commit() error
	}
	stdSQLTx struct{ *sql.Tx }
	pgxTx    struct {
		NativeTx
		ctx context.Context //nolint:unused // as v4 has it
	}
)

func (t stdSQLTx) ExecContext(ctx context.Context, query string, args ...any) (v4Result, error) {
	return t.Tx.ExecContext(ctx, query, args...)
}

func (t stdSQLTx) QueryContext(ctx context.Context, query string, args ...any) (v4Rows, error) {
	return t.Tx.QueryContext(ctx, query, args...) //nolint:rowserrcheck // the rows are the caller's
}

var _ v4Tx = stdSQLTx{}

// ExecQuerier, Conn and entTx are copies of types in ent's package dialect/sql.
type (
	ExecQuerier interface{ sqlkit.Handle }
	Conn        struct {
		ExecQuerier
		dialect string //nolint:unused // as ent has it
	}
	entTx struct {
		Conn
		driver.Tx
	}
)

// hidden is a handle with its transaction in an unexported field. The handle itself counts
// as the transaction.
type hidden struct{ tx *sql.Tx }

func (h hidden) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return h.tx.ExecContext(ctx, query, args...)
}

func (h hidden) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return h.tx.QueryContext(ctx, query, args...)
}

// bunTx embeds *sql.Tx, as bun's does, and rewrites statements.
type bunTx struct {
	ctx context.Context //nolint:unused // as bun has it
	db  *sql.DB         //nolint:unused // as bun has it
	*sql.Tx
}

func (bunTx) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	panic("a statement for PostgreSQL went through bun")
}

// bunState and bunDB are a pool like bun's.
type (
	bunState struct{ *sql.DB }
	bunDB    struct{ *bunState }
)

// unitOfWork is a type of an application.
type unitOfWork struct {
	Name string
	DB   *sql.DB
	Tx   *sql.Tx
	Self *unitOfWork
}

// ring embeds itself.
type ring struct {
	*ring
	*sql.Tx
}

func TestResolve(t *testing.T) {
	t.Parallel()

	t.Run("a transaction is found in its wrappers", func(t *testing.T) {
		t.Parallel()
		tx, conn, nat := new(sql.Tx), new(sql.Conn), &native{number: 1}
		own := &hidden{tx}
		work := &unitOfWork{DB: new(sql.DB), Tx: tx}
		work.Self = work
		turning := &ring{Tx: tx}
		turning.ring = turning
		for name, c := range map[string]struct{ wrapper, want any }{
			"itself":                              {tx, tx},
			"a connection":                        {conn, conn},
			"a handle of one's own":               {own, own},
			"a handle of one's own, by value":     {hidden{tx}, hidden{tx}},
			"watermill-sql v4 over database/sql":  {&stdSQLTx{tx}, tx},
			"watermill-sql v4 by value":           {stdSQLTx{tx}, tx},
			"watermill-sql v4 over the driver":    {&pgxTx{NativeTx: nat}, nat},
			"the driver's transaction":            {nat, nat},
			"bun":                                 {bunTx{Tx: tx}, tx},
			"bun by pointer":                      {&bunTx{Tx: tx}, tx},
			"ent":                                 {&entTx{Conn{ExecQuerier: tx}, tx}, tx},
			"ent's connection":                    {Conn{ExecQuerier: tx}, tx},
			"an interface":                        {struct{ sqlkit.Handle }{tx}, tx},
			"a wrapper of a wrapper":              {struct{ *bunTx }{&bunTx{Tx: tx}}, tx},
			"a wrapper of a handle of one's own":  {&struct{ sqlkit.Handle }{own}, nil},
			"an embedded type that is not public": {struct{ bunTx }{bunTx{Tx: tx}}, tx},
			"an exported field":                   {work, tx},
			"a wrapper that embeds itself":        {turning, tx},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				want := c.want
				if want == nil {
					want = c.wrapper
				}
				found, err := sqlkit.ResolveTx(c.wrapper, natives)
				require.NoError(t, err)
				require.True(t, found == want, "%T", found)
			})
		}
	})

	t.Run("a transaction is one however it is wrapped", func(t *testing.T) {
		t.Parallel()
		tx := new(sql.Tx)
		for _, wrapper := range []any{tx, bunTx{Tx: tx}, &stdSQLTx{tx}, &unitOfWork{Tx: tx}} {
			found, err := sqlkit.TxFrom(sqlkit.WithTx(t.Context(), "store", wrapper), "store")
			require.NoError(t, err)
			require.Same(t, tx, found)
		}
	})

	t.Run("a value without a transaction is refused with a remedy", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			tx   any
			says string
		}{
			"nothing":                           {nil, "it is nil"},
			"a nil pointer":                     {(*bunTx)(nil), "it is nil"},
			"a wrapper of nil":                  {bunTx{}, "holds a transaction that is nil"},
			"a pool":                            {new(sql.DB), "transaction: a *sql.DB is a pool"},
			"a pool of a library":               {&bunDB{&bunState{new(sql.DB)}}, "sqlkit_test.bunDB is no transaction: in it, a *sql.DB is a pool"},
			"a pool of the driver":              {struct{ *NativePool }{&NativePool{}}, "it is a native pool"},
			"two transactions":                  {struct{ One, Two *sql.Tx }{new(sql.Tx), new(sql.Tx)}, "more than one transaction"},
			"a text":                            {"text", "a string neither is nor wraps a transaction"},
			"a type that says where it is from": {&unitOfWork{}, "*github.com/outmill/outmill/storekit/sqlkit_test.unitOfWork"},
			"a field that is not exported": {struct{ tx *sql.Tx }{new(sql.Tx)},
				"pass what BeginTx returns, or a type that has it in an exported field"},
			"not comparable": {struct {
				hidden
				_ []int
			}{}, "cannot be compared"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				found, err := sqlkit.ResolveTx(c.tx, natives)
				require.ErrorIs(t, err, outmill.ErrInvalidTx)
				require.ErrorContains(t, err, c.says)
				require.Nil(t, found)
			})
		}
	})

	t.Run("a transaction of a driver is none to a store of another", func(t *testing.T) {
		t.Parallel()
		_, err := sqlkit.ResolveTx(&pgxTx{NativeTx: &native{}}, sqlkit.Driver{})
		require.ErrorIs(t, err, outmill.ErrInvalidTx)
	})
}
