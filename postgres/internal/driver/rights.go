package driver

import (
	"regexp"
	"slices"
	"strings"

	"github.com/outmill/outmill/postgres/internal/doctor"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// The rights stand once: as comments of the schema, GRANT … TO role, which outmill schema print shows. Examine reads them there.

// roleOf is the role of the schema's comments that has the rights of a task.
var roleOf = map[roles.Task]string{roles.TaskPublish: "publisher", roles.TaskRead: "worker"}

var (
	grantLine = regexp.MustCompile(`(?m)^-- GRANT (.+) ON (FUNCTION |SEQUENCE |SCHEMA |)(.+) TO (.+)$`)
	privilege = regexp.MustCompile(`[A-Z]+(?: \([^)]*\))?`)
	object    = regexp.MustCompile(`\{p:([a-z0-9_]+)\}`)
)

// rightsIn are the rights that the templates of a schema name for each task, and those of its functions that no worker calls.
func rightsIn(templates []string, parts []sqlkit.Part) (rights map[roles.Task][]doctor.Right, reserved []string) {
	rights = map[roles.Task][]doctor.Right{}
	called := map[string]bool{}
	for _, grant := range grantLine.FindAllStringSubmatch(strings.Join(templates, "\n"), -1) {
		privileges, granted := privilege.FindAllString(grant[1], -1), strings.Split(grant[4], ", ")
		for task, role := range roleOf {
			if !slices.Contains(granted, role) {
				continue
			}
			for _, match := range object.FindAllStringSubmatch(grant[3], -1) {
				if grant[2] != "FUNCTION " {
					rights[task] = append(rights[task], doctor.Right{Name: match[1], Privileges: privileges})
				} else if task == roles.TaskRead {
					called[match[1]] = true
				}
			}
		}
	}
	for _, part := range parts {
		if part.Kind == "function" && !called[part.Name] {
			reserved = append(reserved, part.Name)
		}
	}
	return rights, reserved
}
