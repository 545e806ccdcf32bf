package storekit

import (
	"context"

	"github.com/outmill/outmill"
)

// Contexts carry transactions, keyed by their store. So one long-lived publisher serves all
// transactions, and a context may carry transactions of several stores.

type txKey struct{}

type txNode struct {
	store, tx any
	next      *txNode
}

// ContextWithTx returns a context that carries tx for the store. Stores build their WithTx
// on it. store must be comparable.
func ContextWithTx(ctx context.Context, store, tx any) context.Context {
	next, _ := ctx.Value(txKey{}).(*txNode)
	return context.WithValue(ctx, txKey{}, &txNode{store: store, tx: tx, next: next})
}

// TxFromContext returns the transaction that ctx carries for the store. It returns nil if
// ctx carries no transaction, and ErrForeignTx if it carries only transactions of other
// stores. It is for stores.
func TxFromContext(ctx context.Context, store any) (any, error) {
	node, _ := ctx.Value(txKey{}).(*txNode)
	if node == nil {
		return nil, nil
	}
	for ; node != nil; node = node.next {
		if node.store == store {
			return node.tx, nil
		}
	}
	return nil, outmill.ErrForeignTx
}
