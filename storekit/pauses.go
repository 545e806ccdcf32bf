package storekit

import (
	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// concerns reports whether the pause may stop records of the group.
func concerns(p roles.PauseInfo, info outmill.GroupInfo) bool {
	if p.Group != "" {
		return p.Group == info.Group
	}
	if p.Topic == "" {
		return true
	}
	for _, r := range info.Registrations {
		if r.Topics.Match(p.Topic) {
			return true
		}
	}
	return false
}

// NamePauses sets GroupInfo.Pauses of each group: a line for each pause that may stop its
// records, in the order of the pauses. Stores call it for their Groups.
func NamePauses(infos []outmill.GroupInfo, pauses []roles.PauseInfo) {
	for i := range infos {
		for _, p := range pauses {
			if concerns(p, infos[i]) {
				infos[i].Pauses = append(infos[i].Pauses, p.String())
			}
		}
	}
}
