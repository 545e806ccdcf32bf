package sqlserver

import "context"

// Wake calls woken when this process has appended or given back records of a topic. See
// roles.Waker. SQL Server has no LISTEN. Polling finds the commits of other processes and of a
// caller's transaction, except one of InTx.
func (s *Store) Wake(ctx context.Context, woken func(topic string)) { s.notifier.Listen(ctx, woken) }

// HearsOthers is false: see Wake. See roles.Waker.
func (*Store) HearsOthers() bool { return false }
