package dashboard

import (
	"encoding/json"
	"errors"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

type sagasView struct {
	Kind, Correlation string
	// Sagas is the list, of one type or of all; Listed says that there is one.
	Sagas    []*roles.Saga
	Listed   bool
	Examined int
	Next     string

	Saga     *roles.Saga
	Times    []moment
	State    string
	StateCut bool
	Asked    bool
}

// sagaState takes any state: SQL stores decode JSON into it, and MongoDB a document.
type sagaState struct {
	Fields map[string]any `bson:",inline"`
}

// UnmarshalJSON keeps all fields.
func (s *sagaState) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, &s.Fields) }

// sagasPage lists sagas, or finds one by its type and correlation value.
func sagasPage(c *call) error {
	role, ok := outmill.As[roles.Sagas](c.store)
	if !ok {
		return lacks("has no sagas (roles.Sagas)")
	}
	query := c.r.URL.Query()
	v := sagasView{Kind: query.Get("kind"), Correlation: query.Get("correlation")}
	if v.Kind == "" || v.Correlation == "" {
		return c.listSagas(role, v)
	}
	v.Asked = true
	var state sagaState
	saga, err := role.FindSaga(c.ctx, v.Kind, v.Correlation, &state, roles.SagaOptions{})
	switch {
	case errors.Is(err, roles.ErrSagaNotFound):
		return c.render(200, "sagas", "Sagas", v)
	case err != nil:
		return ofOneStore(err, "sagas (roles.Sagas)")
	}
	v.Saga = saga
	v.Times = []moment{{Name: "Started", At: saga.CreatedAt}, {Name: "Changed", At: saga.UpdatedAt}}
	if c.config.ShowPayloads {
		text, err := json.Marshal(state.Fields)
		if err != nil {
			return err
		}
		v.State, v.StateCut = payload(text)
	}
	return c.render(200, "sagas", "Sagas", v)
}

// listSagas lists the newest sagas. A store that keeps each type in a place of its own, such as
// MongoDB, needs the type.
func (c *call) listSagas(role roles.Sagas, v sagasView) error {
	query := roles.SagaQuery{Type: v.Kind, Limit: recordsAtOnce}
	if after := c.r.URL.Query().Get("after"); after != "" {
		var err error
		if query.After, err = outmill.ParseWorkItemID(after); err != nil {
			return badRequest("The id after which the list goes on is no id.")
		}
	}
	page, err := role.ListSagas(c.ctx, query, roles.SagaOptions{})
	if v.Kind == "" && errors.Is(err, outmill.ErrInvalidConfig) {
		return c.render(200, "sagas", "Sagas", v)
	}
	if err != nil {
		return ofOneStore(err, "sagas (roles.Sagas)")
	}
	v.Listed, v.Sagas, v.Examined = true, page.Sagas, page.Examined
	if !page.Done {
		v.Next = c.page("sagas", "kind", v.Kind, "after", page.Next.String())
	}
	return c.render(200, "sagas", "Sagas", v)
}
