package tenants

import "time"

// ChooseListeners is what the set does every Config.MaxIdle.
func (s *Set) ChooseListeners() { s.chooseListeners(time.Now()) }
