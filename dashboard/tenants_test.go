package dashboard_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/dashboard"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/tenants"
)

// twoTenants is a dashboard of the tenants acme and zebra, each with two dead and one waiting record.
type twoTenants struct {
	*site
	set         setOfStores
	acme, zebra *site
	dead        map[string][]*outmill.Record
}

func newTwoTenants(t *testing.T, config dashboard.Config) twoTenants {
	t.Helper()
	set := newSet(t, "acme", "zebra")
	s := twoTenants{site: newSite(t, set, config), set: set, dead: map[string][]*outmill.Record{}}
	s.acme, s.zebra = newSite(t, set.stores[0], config), newSite(t, set.stores[1], config)
	for name, member := range map[string]*site{"acme": s.acme, "zebra": s.zebra} {
		member.register("billing", "orders", "only "+name)
		member.append(orders(2)...)
		s.dead[name] = member.kill("billing", "orders", "refused by "+name)
		member.append(&outmill.Record{Topic: "only " + name, Key: "k"})
	}
	return s
}

func TestTenants(t *testing.T) {
	t.Parallel()
	all := dashboard.Config{AllowChanges: true, ShowErrors: true, ShowPayloads: true, Every: time.Nanosecond}

	t.Run("the stores are listed with their states and counts, and each page shows all of them or one", func(t *testing.T) {
		t.Parallel()
		s := newTwoTenants(t, all)
		stores := s.page("stores")
		require.Contains(t, stores.body, `href="./?store=acme"`)
		require.Equal(t, 2, strings.Count(stores.text(), "ready"))
		require.NotContains(t, s.page("stores?q=zeb").body, "acme")
		require.Contains(t, s.page("").body, `href="topic?group=billing&amp;store=zebra&amp;topic=orders"`)
		for path, texts := range map[string][2]string{
			"?":                     {"only acme", "only zebra"},
			"records?":              {"refused by acme", "refused by zebra"},
			"dead?":                 {"refused by acme", "refused by zebra"},
			"records?status=dead&":  {"refused by acme", "refused by zebra"},
			"records?key=k&":        {"only acme", "only zebra"},
			"events?view=overview&": {"only acme", "only zebra"},
		} {
			read := func(path string) string {
				if !strings.HasPrefix(path, "events") {
					return s.page(path).body
				}
				event, err := s.stream(t.Context(), path).next()
				require.NoError(t, err)
				return event
			}
			both, one := read(path), read(path+"store=acme")
			require.Contains(t, both, texts[0], path)
			require.Contains(t, both, texts[1], path)
			require.Contains(t, one, texts[0], path)
			require.NotContains(t, one, texts[1], path)
			require.NotContains(t, one, "store=zebra", path)
		}
	})

	t.Run("a record is found in its store, and not in another one that the address names", func(t *testing.T) {
		t.Parallel()
		s := newTwoTenants(t, all)
		id := s.dead["zebra"][0].ID.String()
		to := s.get("record?id=" + id)
		require.Equal(t, http.StatusSeeOther, to.StatusCode)
		require.Equal(t, "record?id="+id+"&store=zebra", to.Header.Get("Location"))
		require.Contains(t, s.page("record?id="+id+"&store=zebra").text(), "refused by zebra")
		require.Equal(t, "record?id="+id+"&store=zebra", s.get("find?id="+id).Header.Get("Location"))
		for _, path := range []string{"record", "requeue", "delete", "edit", "skip"} {
			require.Equal(t, http.StatusNotFound, s.get(path+"?store=acme&id="+id).StatusCode, path)
		}
		require.NotContains(t, s.page("find?store=acme&id="+id).body, "refused by zebra")
	})

	t.Run("a change of one record in the name of another store changes nothing", func(t *testing.T) {
		t.Parallel()
		s := newTwoTenants(t, all)
		id := s.dead["zebra"][0].ID
		for _, path := range []string{"requeue", "delete", "edit", "skip"} {
			got := s.post(path, "store", "acme", "id", id.String(), "payload", "x")
			require.Regexp(t, "Nothing was|The store has no record with this id", got.text(), path)
			require.Equal(t, outmill.StatusDead, s.zebra.status(id), path)
		}
	})

	t.Run("a store that is not there, or is named in another way, is refused in each route before anything is done", func(t *testing.T) {
		t.Parallel()
		s := newTwoTenants(t, all)
		for _, name := range []string{"nobody", "ACME", "acme ", "acme,zebra", "*", "acme\x00", "../acme"} {
			for _, path := range dashboard.ClosedRoutes() {
				if path == "logout" {
					continue
				}
				require.Equal(t, http.StatusNotFound, s.get(path+"?store="+url.QueryEscape(name)).StatusCode, "%s %q", path, name)
			}
			for _, path := range dashboard.ChangeRoutes() {
				got := s.post(path, "store", name, "status", "dead", "group", "billing", "topic", "orders")
				require.Equal(t, http.StatusNotFound, got.StatusCode, "%s %q", path, name)
			}
		}
		for name, records := range s.dead {
			for _, r := range records {
				require.Equal(t, outmill.StatusDead, map[string]*site{"acme": s.acme, "zebra": s.zebra}[name].status(r.ID))
			}
		}
	})

	t.Run("a change by a search is made in the stores that its confirmation names", func(t *testing.T) {
		t.Parallel()
		s := newTwoTenants(t, all)
		statuses := func() (found [2]outmill.Status) {
			return [2]outmill.Status{s.acme.status(s.dead["acme"][0].ID), s.zebra.status(s.dead["zebra"][0].ID)}
		}
		ask := s.page("requeue?status=dead&topic=orders&store=acme&store=zebra")
		require.Contains(t, ask.text(), "Storesacme", "the first of two names counts")
		require.Contains(t, s.submit(ask).text(), "2 records were requeued.")
		require.Equal(t, [2]outmill.Status{outmill.StatusPending, outmill.StatusDead}, statuses())
		ask = s.page("delete?status=dead&topic=orders")
		require.Contains(t, ask.text(), "Storesall stores")
		// The store of the address is not that of the form.
		got := s.do(http.MethodPost, "requeue?store=acme", url.Values{"status": {"dead"}, "store": {"zebra"}}, nil)
		require.Contains(t, got.text(), "2 records were requeued.")
		require.Equal(t, [2]outmill.Status{outmill.StatusPending, outmill.StatusPending}, statuses())
	})

	t.Run("each form on a page of one store names that store", func(t *testing.T) {
		t.Parallel()
		s := newTwoTenants(t, all)
		id := s.dead["acme"][0].ID.String()
		for _, path := range []string{
			"requeue?id=" + id, "delete?id=" + id, "edit?id=" + id, "skip?id=" + id, "requeue?status=dead", "delete?status=dead",
			"pause?topic=orders",
			"resume?topic=orders", "drop-group?group=billing",
		} {
			require.Contains(t, s.page(path+"&store=acme").body, `<input type="hidden" name="store" value="acme">`, path)
		}
		for _, path := range []string{"records", "dead", "joins", "sagas", ""} {
			require.Regexp(t, `(?s)<main.*name="store" value="acme"`, s.page(path+"?store=acme").body, path)
		}
	})

	t.Run("a pause of one store stops that store, and is shown and resumed there", func(t *testing.T) {
		t.Parallel()
		s := newTwoTenants(t, all)
		require.Contains(t, s.submit(s.page("pause?store=acme&topic=orders"), "topic", "orders").text(), "Deliveries are paused.")
		require.Contains(t, s.page("pauses").body, `href="resume?store=acme&amp;topic=orders"`)
		require.Contains(t, s.page("pauses?store=acme").text(), "topic")
		require.Contains(t, s.page("pauses?store=zebra").text(), "Nothing is paused.")
		require.Contains(t, s.page("?store=acme").text(), "paused")
		require.NotContains(t, s.page("?store=zebra").text(), "paused")
		require.Contains(t, s.submit(s.page("resume?store=zebra&topic=orders")).text(), "There was no such pause.")
		require.Contains(t, s.submit(s.page("resume?store=acme&topic=orders")).text(), "Deliveries are resumed.")
	})

	t.Run("the audit has the entries of all stores with their names, or those of one", func(t *testing.T) {
		t.Parallel()
		s := newTwoTenants(t, all)
		for _, name := range []string{"acme", "zebra"} {
			id := s.dead[name][0].ID.String()
			require.Contains(t, s.submit(s.page("requeue?store="+name+"&id="+id)).text(), "1 record was requeued.")
			require.Contains(t, s.page("audit").body, "record?id="+id+"&amp;store="+name)
		}
		one := s.page("audit?store=acme").body
		require.Contains(t, one, s.dead["acme"][0].ID.String())
		require.NotContains(t, one, s.dead["zebra"][0].ID.String())
	})

	t.Run("joins and sagas are those of one store, which the page asks for", func(t *testing.T) {
		t.Parallel()
		s := newTwoTenants(t, all)
		join := &roles.Join{ExpectedSteps: 2, GroupingKey: "customer 7"}
		require.NoError(t, s.set.stores[0].StartJoin(t.Context(), join))
		type state struct{ Step string }
		require.NoError(t, s.set.stores[0].InsertSaga(t.Context(), &roles.Saga{Type: "order", Correlation: "7"}, &state{"paid"},
			roles.SagaOptions{}))
		require.Contains(t, s.page("joins").text(), "choose one on the page Stores")
		require.Contains(t, s.page("joins?store=acme").body, "join?id="+join.ID.String()+"&amp;store=acme")
		require.Contains(t, s.page("joins?store=zebra").text(), "No join matches.")
		require.Contains(t, s.page("join?store=acme&id="+join.ID.String()).text(), "customer 7")
		require.Equal(t, http.StatusNotFound, s.get("join?store=zebra&id="+join.ID.String()).StatusCode)
		require.Contains(t, s.page("sagas?store=acme").body, `href="sagas?correlation=7&amp;kind=order&amp;store=acme"`)
		require.Contains(t, s.page("sagas").text(), "choose one on the page Stores")
		require.Contains(t, s.page("sagas?kind=order&correlation=7").text(), "choose one on the page Stores")
		require.Contains(t, s.page("sagas?kind=order&correlation=7&store=acme").text(), "paid")
		require.Contains(t, s.page("sagas?kind=order&correlation=7&store=zebra").text(), "No saga of this type")
		require.Equal(t, http.StatusNotFound, s.post("cancel-join", "store", "zebra", "id", join.ID.String()).StatusCode)
		found, err := s.set.stores[0].GetJoin(t.Context(), join.ID)
		require.NoError(t, err)
		require.Equal(t, roles.JoinPending, found.Status)
	})

	t.Run("a group is dropped in all stores, as its confirmation says also on the page of one", func(t *testing.T) {
		t.Parallel()
		s := newTwoTenants(t, all)
		ask := s.page("drop-group?group=billing&store=acme")
		require.Contains(t, ask.text(), "in all stores")
		require.Contains(t, s.submit(ask).text(), "The group was dropped: 4 records deleted, 2 records given back")
	})

	t.Run("a store that cannot be opened is listed with its error, where errors are shown, and the others work", func(t *testing.T) {
		t.Parallel()
		list := tenants.Static{{Key: "acme", Store: newSQLite(t)}, {Key: "zebra", URL: "broken:"}}
		set, err := tenants.New(t.Context(), tenants.Config{
			Discovery: list, Open: func(context.Context, tenants.Tenant) (outmill.Store, error) {
				return nil, errors.New("no route to S3CRET-HOST")
			},
		}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, set.Close()) })
		shown, hidden := newSite(t, set, all), newSite(t, set, dashboard.Config{})
		require.Contains(t, shown.page("stores").text(), "no route to S3CRET-HOST")
		require.Contains(t, hidden.page("stores").text(), "The error is hidden here")
		require.NotContains(t, hidden.page("stores").body, "S3CRET")
		require.Contains(t, hidden.page("stores").text(), "opening")
		require.Equal(t, http.StatusNotFound, hidden.get("?store=zebra").StatusCode)
		require.Equal(t, http.StatusOK, hidden.get("?store=acme").StatusCode)
	})

	t.Run("a store that fails is named on the pages of all stores, without its error, and the others are shown", func(t *testing.T) {
		t.Parallel()
		s := newTwoTenants(t, dashboard.Config{Every: time.Nanosecond})
		require.NoError(t, s.set.stores[1].Close())
		for _, path := range []string{"", "records", "dead", "audit", "groups"} {
			page := s.page(path)
			require.Contains(t, page.text(), "Some stores did not answer", path)
			require.NotContains(t, page.text(), "closed", path)
		}
		require.Contains(t, s.page("").text(), "only acme")
		require.Contains(t, s.page("records").text(), "only acme")
		require.Contains(t, s.page("records?topic=nothing").text(), "Some stores did not answer")
		for _, path := range []string{"records", "dead", "audit"} {
			require.Equal(t, http.StatusBadGateway, s.get(path+"?store=zebra").StatusCode, path)
		}
		require.NoError(t, s.set.stores[0].Close())
		for _, path := range []string{"records", "dead", "audit", "groups"} {
			require.Equal(t, http.StatusBadGateway, s.get(path).StatusCode, path)
		}
	})

	t.Run("a set of stores that lack a role names the role", func(t *testing.T) {
		t.Parallel()
		set, err := tenants.New(t.Context(), tenants.Config{
			Discovery: tenants.Static{{Key: "acme", Store: &bare{newSQLite(t)}}}, WithoutRest: true}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, set.Close()) })
		s := newSite(t, set, all)
		for _, path := range []string{"joins?store=acme", "sagas?kind=order&correlation=7&store=acme", "sagas?store=acme"} {
			require.Contains(t, s.page(path).text(), "This store ", path)
		}
		require.Contains(t, s.post("pause", "topic", "orders").text(), "This store has no pauses")
		require.Equal(t, http.StatusSeeOther, s.get("dead").StatusCode)
	})
}
