package storekit

import (
	"context"

	"github.com/outmill/outmill"
)

// Transactions travel in the context, keyed by the store that they belong to,
// so that one long-lived publisher serves every transaction and a context may
// carry transactions of several stores.

type txKey struct{}

type txNode struct {
	store, tx any
	next      *txNode
}

// ContextWithTx returns a context that carries tx for the store. It is for
// stores to build their WithTx on; store must be comparable.
func ContextWithTx(ctx context.Context, store, tx any) context.Context {
	next, _ := ctx.Value(txKey{}).(*txNode)
	return context.WithValue(ctx, txKey{}, &txNode{store: store, tx: tx, next: next})
}

// TxFromContext returns the transaction that ctx carries for the store, nil if
// it carries none at all, ErrForeignTx if it carries those of other stores
// only. It is for stores.
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
