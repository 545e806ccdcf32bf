package memstore

// table has rows by their keys, and the changes of open transactions, which others see after
// the commit. While one open transaction has changed a row, no other may change it. The
// database's lock guards the table.
type table[K comparable, V any] struct {
	rows map[K]V
	open map[K]change[V]
}

// change is the new value of a row in an open transaction; nil means deleted.
type change[V any] struct {
	by  *Tx
	row *V
}

func newTable[K comparable, V any]() table[K, V] {
	return table[K, V]{map[K]V{}, map[K]change[V]{}}
}

// get returns the row as the transaction sees it, or nil if there is none.
func (b table[K, V]) get(t *Tx, key K) *V {
	if c, changed := b.open[key]; changed && c.by == t {
		return c.row
	}
	if row, found := b.rows[key]; found {
		return &row
	}
	return nil
}

// holder returns the other open transaction that has changed the row, or nil.
func (b table[K, V]) holder(t *Tx, key K) *Tx {
	if by := b.open[key].by; by != t {
		return by
	}
	return nil
}

// set changes the row in the transaction; nil deletes it. No other open transaction may have
// changed the row.
func (b table[K, V]) set(t *Tx, key K, row *V) { b.open[key] = change[V]{t, row} }

// end applies the changes of the transaction if it has committed, and discards them
// otherwise.
func (b table[K, V]) end(t *Tx, committed bool) {
	for key, c := range b.open {
		if c.by != t {
			continue
		}
		delete(b.open, key)
		switch {
		case !committed:
		case c.row == nil:
			delete(b.rows, key)
		default:
			b.rows[key] = *c.row
		}
	}
}

// deleteUpTo deletes up to limit matching rows that no open transaction has changed, and
// returns their number.
func (b table[K, V]) deleteUpTo(limit int, match func(key K, row V) bool) (n int) {
	for key, row := range b.rows {
		if n < limit && b.open[key].by == nil && match(key, row) {
			delete(b.rows, key)
			n++
		}
	}
	return n
}
