package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/storekit"
)

const sqlDateStyle = `SELECT current_setting('DateStyle')`

// checkDates refuses a database whose times the driver cannot read. In two of its modes the driver
// gets times as text, and reads only those of DateStyle ISO. In its other modes it gets numbers.
func (s *Store) checkDates(ctx context.Context) error {
	mode, err := s.conns.Mode(ctx)
	if err != nil {
		return err
	}
	switch mode {
	case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol:
	default:
		return nil
	}
	var style string
	if err := s.conns.ScanRow(ctx, sqlDateStyle, nil, &style); err != nil || strings.HasPrefix(style, "ISO") {
		return err
	}
	return storekit.InvalidConfig("the database has DateStyle %q, and with default_query_exec_mode=exec or simple_protocol the driver reads "+
		"only ISO: set DateStyle to 'ISO, MDY' for the database or the role, or use default_query_exec_mode=cache_describe", style)
}
