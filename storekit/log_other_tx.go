package storekit

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
)

// OtherTx logs, once in the life of a store, that an accessor such as Tx has found a transaction
// of another type than it returns. tx is nil if it has found none, which logs nothing. The caller
// of the accessor gets only false, and would look for the mistake in WithTx.
func (l *Log) OtherTx(accessor string, tx any) {
	if l.off || tx == nil {
		return
	}
	l.otherTx.Do(func() {
		l.Info(accessor+" reports false, because the transaction of the context has another type: use TxOf, which returns any transaction, "+
			"or the transaction of the library that began it", watermill.LogFields{"transaction": fmt.Sprintf("%T", tx)})
	})
}

// TxAs returns a transaction that a store's TxOf has found, if it has the type of the accessor. Otherwise it is OtherTx.
func TxAs[T any](l *Log, accessor string, found any, err error) (tx T, ok bool) {
	if tx, ok = found.(T); !ok {
		l.OtherTx(accessor, found)
	}
	return tx, ok && err == nil
}
