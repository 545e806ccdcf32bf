package sqlkit

import (
	"database/sql"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/outmill/outmill"
)

// Driver describes the transactions that a store accepts in addition to those of
// database/sql. The zero value adds none.
type Driver struct {
	// IsTx, if set, reports whether a value is a transaction of the driver.
	IsTx func(tx any) bool
	// NoTx, if set, returns the reason why a value is not a transaction, with a remedy, or ""
	// for unknown values.
	NoTx func(tx any) string
}

// ResolveTx returns the transaction that tx is or wraps: *sql.Tx, *sql.Conn, the driver's,
// or a [Handle]. A struct, or a pointer to one, wraps the values that it embeds or has in
// exported fields, at any depth of embedding; so do bun.Tx, sqlx.Tx, ent's Tx, gorm's
// ConnPool and the Tx of watermill-sql v4. Wrappers may rewrite statements, as bun does, so
// statements bypass them. A transaction is the same with every wrapper around it.
//
// The result can be compared with ==. The error is an outmill.ErrInvalidTx that
// says what to pass instead.
func ResolveTx(tx any, driver Driver) (any, error) {
	if plain, ok := tx.(*sql.Tx); ok && plain != nil {
		return plain, nil
	}
	if outmill.IsNil(tx) {
		return nil, refused("it is nil")
	}
	of := reflect.TypeOf(tx)
	if remedy := remedyFor(of); remedy != "" {
		return nil, refused("a %s is not the transaction itself: %s", typeName(of), remedy)
	}
	s := search{driver: driver, passed: of}
	s.look(reflect.ValueOf(tx), maxDepth)
	switch {
	case len(s.found) > 1:
		return nil, refused("a %s holds more than one transaction: pass the one that the messages belong to", typeName(of))
	case len(s.found) == 1:
		return s.found[0], nil
	case s.err != nil:
		return nil, s.err
	case s.empty:
		return nil, refused("a %s holds a transaction that is nil", typeName(of))
	}
	if _, ok := tx.(Handle); !ok {
		return nil, refused("a %s neither is nor wraps a transaction: pass what BeginTx returns, or a type that has it in an exported field%s",
			typeName(of), entRemedy(of))
	}
	if err := canCompare(tx); err != nil {
		return nil, err
	}
	return tx, nil
}

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{outmill.ErrInvalidTx}, args...)...)
}

// canCompare returns an error for a value that cannot be compared with other transactions.
func canCompare(tx any) error {
	if reflect.ValueOf(tx).Comparable() {
		return nil
	}
	return refused("a %s cannot be compared, so two uses of it cannot be told from two transactions: pass a pointer",
		typeName(reflect.TypeOf(tx)))
}

// maxDepth limits the search, because embedded values may form a cycle.
const maxDepth = 6

// search looks for transactions in wrappers.
type search struct {
	driver Driver
	// passed is the type of the value that the caller passed.
	passed reflect.Type
	// found are the transactions, each once.
	found []any
	// err is the reason why a value that looked like a transaction cannot be used.
	err error
	// empty says that a field that could hold a transaction holds nil.
	empty bool
}

// look reports whether it has found a transaction in v or in a value that v embeds.
func (s *search) look(v reflect.Value, depth int) bool {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if depth == 0 || !v.IsValid() || !v.CanInterface() {
		return false
	}
	value := v.Interface()
	isTx := s.isTx(value)
	if outmill.IsNil(value) {
		s.empty = s.empty || isTx
		return false
	}
	if isSQL(value) {
		return s.add(value)
	}
	if reason := s.noTx(value); reason != "" {
		s.err = refused("%s%s", s.within(v), reason)
		return false
	}
	within := s.lookWithin(v, depth)
	if !within && isTx {
		return s.add(value)
	}
	return within
}

// within names the value that the caller passed, unless v is that value.
func (s *search) within(v reflect.Value) string {
	if v.Type() == s.passed {
		return ""
	}
	return fmt.Sprintf("a %s is no transaction: in it, ", typeName(s.passed))
}

// lookWithin searches the fields of a struct, or of the struct that a pointer points to. It
// descends only into embedded fields, because other fields may hold unrelated values.
func (s *search) lookWithin(v reflect.Value, depth int) (found bool) {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return false
	}
	for i := range v.NumField() {
		field, of := v.Field(i), v.Type().Field(i)
		switch {
		case of.Anonymous:
			found = s.lookEmbedded(field, depth-1) || found
		case of.IsExported() && s.mayBeTx(field):
			found = s.look(field, depth-1) || found
		}
	}
	return found
}

// lookEmbedded also searches embedded types that are not exported, because their exported
// fields are promoted.
func (s *search) lookEmbedded(field reflect.Value, depth int) bool {
	if field.CanInterface() {
		return s.look(field, depth)
	}
	if depth == 0 || field.Kind() == reflect.Pointer && field.IsNil() {
		return false
	}
	return s.lookWithin(field, depth)
}

// mayBeTx reports whether the field's type can be a transaction: the value is one, or is
// nil.
func (s *search) mayBeTx(field reflect.Value) bool {
	if field.Kind() == reflect.Interface {
		field = field.Elem()
	}
	return field.IsValid() && field.CanInterface() && s.isTx(field.Interface())
}

func (s *search) add(tx any) bool {
	if s.err = canCompare(tx); s.err != nil {
		return false
	}
	if !slices.Contains(s.found, tx) {
		s.found = append(s.found, tx)
	}
	return true
}

func (s *search) isTx(value any) bool {
	return isSQL(value) || s.driver.IsTx != nil && s.driver.IsTx(value)
}

// isSQL reports whether the value is a transaction of database/sql. It accepts a
// connection, and assumes that the caller has begun a transaction on it.
func isSQL(value any) bool {
	switch value.(type) {
	case *sql.Tx, *sql.Conn:
		return true
	}
	return false
}

func (s *search) noTx(value any) string {
	if _, ok := value.(*sql.DB); ok {
		return "a *sql.DB is a pool, not a transaction: pass what its BeginTx returns"
	}
	if s.driver.NoTx != nil {
		return s.driver.NoTx(value)
	}
	return ""
}

// typeName includes the path of the package, because many libraries call their type Tx.
func typeName(of reflect.Type) string {
	switch {
	case of.Kind() == reflect.Pointer:
		return "*" + typeName(of.Elem())
	case of.Name() != "" && of.PkgPath() != "":
		return of.PkgPath() + "." + of.Name()
	}
	return of.String()
}

// remedyFor knows types that hold their transaction in a place where the search cannot find
// it.
func remedyFor(of reflect.Type) string {
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Name() == "DB" && of.PkgPath() == "gorm.io/gorm" {
		return "in db.Transaction, pass tx.Statement.ConnPool"
	}
	return ""
}

// entRemedy is for ent's generated Tx, which is in a package of the user, and hides its
// transaction.
func entRemedy(of reflect.Type) string {
	if !hasEntField(of, maxDepth) {
		return ""
	}
	return `; of ent, pass tx.(*entsql.Tx).ExecQuerier, where tx is what the driver's Tx returned, ` +
		`or generate with the feature "sql/execquery" and pass the *ent.Tx`
}

func hasEntField(of reflect.Type, depth int) bool {
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || depth == 0 {
		return false
	}
	for i := range of.NumField() {
		field := of.Field(i)
		if strings.HasPrefix(field.Type.PkgPath(), "entgo.io/ent") || field.Anonymous && hasEntField(field.Type, depth-1) {
			return true
		}
	}
	return false
}
