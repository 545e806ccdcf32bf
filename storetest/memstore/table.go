package memstore

// table has rows by their keys, and the changes of open transactions, which others see when
// these commit. A row that one open transaction has changed can be changed by no other.
// The database's lock guards it.
type table[K comparable, V any] struct {
	rows map[K]V
	open map[K]change[V]
}

// change is what an open transaction has made of a row; nil has deleted it.
type change[V any] struct {
	by  *Tx
	row *V
}

func newTable[K comparable, V any]() table[K, V] {
	return table[K, V]{map[K]V{}, map[K]change[V]{}}
}

// get returns the row as the transaction sees it, nil where there is none.
func (b table[K, V]) get(t *Tx, key K) *V {
	if c, changed := b.open[key]; changed && c.by == t {
		return c.row
	}
	if row, found := b.rows[key]; found {
		return &row
	}
	return nil
}

// holder returns the other transaction that has changed the row, nil where there is none.
func (b table[K, V]) holder(t *Tx, key K) *Tx {
	if by := b.open[key].by; by != t {
		return by
	}
	return nil
}

// set changes the row in the transaction, which must be the only one that does; nil deletes it.
func (b table[K, V]) set(t *Tx, key K, row *V) { b.open[key] = change[V]{t, row} }

// end makes the changes of the transaction, if it has committed, and forgets them.
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

// deleteUpTo deletes up to limit of the rows that match and that no open transaction has
// changed, and returns how many.
func (b table[K, V]) deleteUpTo(limit int, match func(key K, row V) bool) (n int) {
	for key, row := range b.rows {
		if n < limit && b.open[key].by == nil && match(key, row) {
			delete(b.rows, key)
			n++
		}
	}
	return n
}
