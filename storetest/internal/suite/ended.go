package suite

import "context"

// TxEnd is a way in which a transaction can end.
type TxEnd struct {
	// Name of the way, for messages.
	Name string
	// Commits says that the transaction is committed, and not rolled back.
	Commits bool
	// End ends the transaction that ctx carries for the store, and returns when it has ended. It
	// fails the test if it cannot end it.
	End func(ctx context.Context)
}
