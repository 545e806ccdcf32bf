package sqlserver

import "context"

// Wake calls woken when this process has appended or given back records of a
// topic. See storekit.Waker. SQL Server has nothing like LISTEN: polling finds what
// other processes commit, and what a caller's transaction commits, unless it is
// InTx's.
func (s *Store) Wake(ctx context.Context, woken func(topic string)) { s.notifier.Listen(ctx, woken) }
