package sqlserver

import "github.com/outmill/outmill/storekit"

// InSteps is the config with steps of that many records, where one transaction does not finish the work.
func (c Config) InSteps(records int) Config {
	c.atOnce = storekit.BatchSize(records)
	return c
}
