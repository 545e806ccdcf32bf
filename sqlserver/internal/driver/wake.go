package driver

import (
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

var _ driver.Notifying = (*Driver)(nil)

// Notifier has the hints of this process. SQL Server has no LISTEN: polling finds the commits of others.
func (d *Driver) Notifier() *storekit.Notifier { return &d.notifier }
