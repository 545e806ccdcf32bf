package memstore

import (
	"encoding/json"
	"errors"

	"github.com/outmill/outmill/storekit"
)

// errGuarded is the error of a unique index that a user has made.
var errGuarded = errors.New("another saga has the same value in a field that is unique")

// GuardSagas makes a field of the states of this type of sagas unique, as an index of a user
// does on other engines.
func (d *Database) GuardSagas(kind, field string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.guards[kind] = append(d.guards[kind], field)
}

// guard refuses a saga that has the value of another one in a field that is unique.
func (t *Tx) guard(changed *savedSaga) error {
	for _, field := range t.db.guards[changed.Type] {
		wanted := fieldOf(changed.state, field)
		for _, other := range t.sagas(func(saga *storekit.Saga) bool { return saga.Type == changed.Type && saga.ID != changed.ID }) {
			if stored := t.db.sagas.get(t, keyOf(other)); wanted != "" && fieldOf(stored.state, field) == wanted {
				return errGuarded
			}
		}
	}
	return nil
}

// fieldOf returns a field of a state as JSON; "" is none.
func fieldOf(state, field string) string {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal([]byte(state), &fields)
	return string(fields[field])
}
