package storetest

import (
	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// TxEnder is a Harness of an engine that can end a transaction while the program goes on in it.
// The section "ended" of txtest needs it. If the engine cannot do that, name the section in
// Unsupported, with the reason.
type TxEnder interface {
	// EndTx returns the ways in which a transaction can end without a call of the Commit or
	// Rollback that belongs to it: those of the engine (such as an interrupted statement, a full
	// database, a session that the server ends), and a ROLLBACK and a COMMIT that the program
	// sends as statements. It may prepare the database of the store for them.
	EndTx(store outmill.Store) []TxEnd
}

// TxEnd is a way in which a transaction can end.
type TxEnd = suite.TxEnd
