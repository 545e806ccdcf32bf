package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/outmill/outmill"
)

// search has the flags of a command that looks for records and shows some of them.
type search struct {
	on      target
	out     output
	only    filter
	limit   int
	payload bool
}

func (s *search) flags(cmd *cobra.Command, withStatus bool) {
	s.on.flags(cmd)
	s.out.flags(cmd)
	s.only.flags(cmd, withStatus)
	cmd.Flags().IntVar(&s.limit, "limit", 100, "list this `NUMBER` of records at most")
	cmd.Flags().BoolVar(&s.payload, "payload", false, "show the payloads")
}

// does makes cmd open the store and call show with the query of the flags.
func (s *search) does(
	cmd *cobra.Command, show func(ctx context.Context, store opened, query outmill.ListQuery, asJSON bool) error,
) *cobra.Command {
	return does(cmd, func(ctx context.Context, args []string) error {
		url, _, err := s.on.take(args)
		if err != nil {
			return err
		}
		asJSON, err := s.out.json()
		if err != nil {
			return err
		}
		query, err := s.only.resolve()
		if err != nil {
			return err
		}
		if s.limit < 1 {
			return usagef("--limit is %d: want 1 or more", s.limit)
		}
		return s.on.with(ctx, url, func(store opened) error { return show(ctx, store, query, asJSON) })
	})
}
