package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/outmill/outmill/storekit"
)

// actor has the flag that says who changes records, for the audit.
type actor struct{ by string }

func (a *actor) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.by, "by", operator(), "the `NAME` of who does it, for the audit")
}

// named returns the context of the command's changes, which leave one entry in the audit.
func (a *actor) named(ctx context.Context) context.Context {
	return storekit.OneCommand(storekit.WithActor(ctx, a.by))
}
