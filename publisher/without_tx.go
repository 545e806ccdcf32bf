package publisher

// warnWithoutTx logs the first message that is published outside a transaction, because a
// forgotten WithTx looks like success until a transaction is rolled back and its message
// arrives all the same. Watermill has no level for warnings.
func (p *Publisher) warnWithoutTx() {
	if p.cfg.RequireTx || p.cfg.AllowNoTx {
		return
	}
	p.warned.Do(func() {
		p.log.Error("Warning: a message was published outside a transaction, so no rollback takes it back; pass the transaction by the "+
			"store's WithTx and set publisher.Config.RequireTx, or set AllowNoTx if that is intended", nil, nil)
	})
}
