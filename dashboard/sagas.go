package dashboard

import (
	"encoding/json"
	"errors"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

type sagasView struct {
	Kind, Correlation string
	Saga              *storekit.Saga
	Times             []moment
	State             string
	StateCut          bool
	Asked             bool
}

// sagaState takes any state: SQL stores decode JSON into it, and MongoDB a document.
type sagaState struct {
	Fields map[string]any `bson:",inline"`
}

// UnmarshalJSON keeps all fields.
func (s *sagaState) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, &s.Fields) }

// sagasPage finds a saga by its type and correlation value. Stores keep no list of sagas.
func sagasPage(c *call) error {
	role, ok := outmill.As[storekit.Sagas](c.store)
	if !ok {
		return lacks("has no sagas (storekit.Sagas)")
	}
	query := c.r.URL.Query()
	v := sagasView{Kind: query.Get("kind"), Correlation: query.Get("correlation")}
	if v.Kind == "" || v.Correlation == "" {
		return c.render(200, "sagas", "Sagas", v)
	}
	v.Asked = true
	var state sagaState
	saga, err := role.FindSaga(c.ctx, v.Kind, v.Correlation, &state, storekit.SagaOptions{})
	switch {
	case errors.Is(err, storekit.ErrSagaNotFound):
		return c.render(200, "sagas", "Sagas", v)
	case err != nil:
		return ofOneStore(err, "sagas (storekit.Sagas)")
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
