package postgres

import (
	"context"

	"github.com/outmill/outmill/postgres/internal/doctor"
	"github.com/outmill/outmill/roles"
)

// taskRights are those of the documentation, for a schema without the log.
var taskRights = map[roles.Task][]doctor.Right{
	roles.TaskPublish: {
		{Name: "meta", Privileges: []string{"SELECT"}}, {Name: "groups", Privileges: []string{"SELECT"}},
		{Name: "records", Privileges: []string{"INSERT"}}, {Name: "dedup", Privileges: []string{"SELECT", "INSERT", "UPDATE"}},
	},
	roles.TaskRead: {
		{Name: "meta", Privileges: []string{"SELECT", "UPDATE"}},
		{Name: "groups", Privileges: []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
		{Name: "workers", Privileges: []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
		{Name: "endings", Privileges: []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
		{Name: "records", Privileges: []string{"SELECT", "UPDATE", "DELETE"}},
		{Name: "dedup", Privileges: []string{"SELECT", "UPDATE", "DELETE"}},
		{Name: "inbox", Privileges: []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
		{Name: "sagas", Privileges: []string{"SELECT", "DELETE"}}, {Name: "audit", Privileges: []string{"SELECT", "DELETE"}},
		{Name: "lanes", Privileges: []string{"SELECT", "INSERT", "UPDATE", "DELETE"}}, {Name: "pauses", Privileges: []string{"SELECT"}},
		{Name: "joins", Privileges: []string{"SELECT", "UPDATE", "DELETE"}},
		{Name: "join_members", Privileges: []string{"SELECT", "UPDATE", "DELETE"}},
	},
}

// logRights are the further ones for a schema with the log.
var logRights = map[roles.Task][]doctor.Right{
	roles.TaskPublish: {{Name: "log", Privileges: []string{"INSERT"}}, {Name: "records_seq_seq", Privileges: []string{"USAGE"}}},
	roles.TaskRead: {
		{Name: "records", Privileges: []string{"INSERT"}}, {Name: "log", Privileges: []string{"SELECT", "DELETE"}},
		{Name: "batches", Privileges: []string{"SELECT", "INSERT", "UPDATE"}},
		{Name: "late", Privileges: []string{"SELECT", "INSERT", "UPDATE", "DELETE"}}, {Name: "ended", Privileges: []string{"SELECT", "INSERT"}},
		{Name: "records_seq_seq", Privileges: []string{"SELECT"}},
	},
}

const sqlLogIsOn = `SELECT count(*) FROM {p:meta} WHERE only_row AND lane = 'log'`

// rightsOf are the rights of each task.
func rightsOf(logged bool) map[roles.Task][]doctor.Right {
	all := map[roles.Task][]doctor.Right{}
	for task, rights := range taskRights {
		if all[task] = rights; logged {
			all[task] = append(rights[:len(rights):len(rights)], logRights[task]...)
		}
	}
	return all
}

// logIsOn returns false if the user may not read it.
func (s *Store) logIsOn(ctx context.Context) (on bool, err error) {
	var n int
	err = s.safe().QueryRow(ctx, s.sql.text(sqlLogIsOn)).Scan(&n)
	if code(err) == codeNoRight {
		return false, nil
	}
	return n > 0, err
}
