package publisher

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// transaction returns the context that carries the transaction of the call.
func (p *Publisher) transaction(base context.Context, messages []*message.Message) (context.Context, error) {
	var first context.Context
	var firstTx any
	for i, msg := range messages {
		ctx, tx, err := p.transactionOf(base, msg)
		switch {
		case err != nil:
			return nil, fmt.Errorf("message %d: %w", i, err)
		case i == 0:
			first, firstTx = ctx, tx
		case tx != firstTx:
			return nil, fmt.Errorf("message %d: %w", i, outmill.ErrMixedTx)
		}
	}
	if firstTx == nil && p.cfg.RequireTx {
		return nil, outmill.ErrNoTx
	}
	if firstTx == nil {
		p.warnWithoutTx()
	}
	return first, nil
}

// transactionOf reads the message's own context first, then the view's.
func (p *Publisher) transactionOf(base context.Context, msg *message.Message) (context.Context, any, error) {
	own := msg.Context()
	tx, err := p.writer.TxOf(own)
	if base == nil || tx != nil || (err != nil && !errors.Is(err, outmill.ErrForeignTx)) {
		return own, tx, err
	}
	baseTx, baseErr := p.writer.TxOf(base)
	if baseErr == nil && baseTx == nil && err != nil {
		return own, nil, err
	}
	return base, baseTx, baseErr
}
