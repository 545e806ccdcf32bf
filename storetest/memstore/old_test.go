package memstore_test

// Old says that the store is not on package engine yet.
func (harness) Old() {}
