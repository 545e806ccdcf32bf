package driver_test

import (
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/dashboard"
)

// damagedSite is a dashboard of a store whose records can be made unreadable.
type damagedSite struct {
	damaged
	board *dashboard.Dashboard
}

func newSite(t *testing.T, config dashboard.Config) damagedSite {
	t.Helper()
	b := newDamaged(t)
	config.User = func(*http.Request) string { return "ann" }
	board, err := dashboard.New(b.store, config, nil)
	require.NoError(t, err)
	t.Cleanup(board.Close)
	return damagedSite{b, board}
}

func (s damagedSite) ask(method, path string, form url.Values) string {
	s.Helper()
	r := httptest.NewRequestWithContext(s.Context(), method, "/"+path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Host = "localhost"
	w := httptest.NewRecorder()
	s.board.ServeHTTP(w, r)
	require.Equal(s, http.StatusOK, w.Code, w.Body.String())
	return w.Body.String()
}

func (s damagedSite) page(path string) string {
	return html.UnescapeString(s.ask(http.MethodGet, path, nil))
}

// submit submits the form of a page.
func (s damagedSite) submit(page string, pairs ...string) string {
	s.Helper()
	form := url.Values{}
	hidden := regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`)
	for _, field := range hidden.FindAllStringSubmatch(s.ask(http.MethodGet, page, nil), -1) {
		form.Set(field[1], html.UnescapeString(field[2]))
	}
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	action, _, _ := strings.Cut(page, "?")
	return s.ask(http.MethodPost, action, form)
}

func (s damagedSite) add(payload string) *outmill.Record {
	s.Helper()
	r := &outmill.Record{Topic: "orders", Payload: []byte(payload)}
	require.NoError(s, s.Append(s.Context(), r))
	return r
}

func TestDashboard_Unreadable(t *testing.T) {
	t.Parallel()

	t.Run("each page names what of a record cannot be read, also where errors are hidden", func(t *testing.T) {
		t.Parallel()
		for _, config := range []dashboard.Config{{}, {ShowErrors: true, ShowPayloads: true}} {
			s := newSite(t, config)
			r := s.add("secret")
			s.breakIt(r, "tenant_id")
			require.Contains(t, s.page("records?topic=orders"), "Cannot be read: column tenant_id")
			require.Empty(t, s.claim("host:1"))
			s.breakIt(r, "payload")
			page := s.page("record?id=" + r.ID.String())
			for _, text := range []string{
				"What cannot be read", "column tenant_id", "column payload", "nobody has handled it", "There is no payload that can be read.",
			} {
				require.Contains(t, page, text)
			}
			require.NotContains(t, page, "secret")
			for _, list := range []string{"records?status=dead", "dead"} {
				require.Contains(t, s.page(list), "annot be read", list)
			}
		}
	})

	t.Run("an edit of a record that cannot be read has it delivered after a requeue", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, dashboard.Config{AllowChanges: true, ShowPayloads: true})
		r := s.add("lost")
		s.breakIt(r, "payload")
		require.Empty(t, s.claim("host:1"))
		require.Contains(t, s.submit("edit?id="+r.ID.String(), "payload", "mended", "metadata", "{}"), "The record is changed.")
		require.NotContains(t, s.page("record?id="+r.ID.String()), "What cannot be read")
		require.Contains(t, s.submit("requeue?id="+r.ID.String()), "1 record was requeued.")
		found := s.claim("host:1")
		require.Len(t, found, 1)
		require.Equal(t, "mended", string(found[0].Payload))
	})

	t.Run("a record that cannot be read is deleted", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, dashboard.Config{AllowChanges: true})
		r := s.add("")
		for _, column := range s.Columns() {
			s.breakIt(r, column)
		}
		require.Contains(t, s.submit("delete?id="+r.ID.String()), "1 record was deleted.")
		_, err := s.Get(t.Context(), r.ID)
		require.ErrorIs(t, err, outmill.ErrNotFound)
	})
}

func TestDashboard_LastAttempts(t *testing.T) {
	t.Parallel()
	for _, shows := range []bool{false, true} {
		s := newSite(t, dashboard.Config{ShowErrors: shows})
		r := s.add("")
		s.abandon("card refused <script>alert(1)</script>")
		s.abandon("bank closed")
		page := s.page("record?id=" + r.ID.String())
		require.Contains(t, page, "Last attempts")
		require.Contains(t, page, "by <bdi>host <7></bdi>")
		require.NotContains(t, s.ask(http.MethodGet, "record?id="+r.ID.String(), nil), "<script>alert")
		if !shows {
			require.NotContains(t, page, "card refused")
			require.NotContains(t, page, "bank closed")
			continue
		}
		require.Regexp(t, `(?s)host <7></bdi>: <bdi>bank closed.*host <7></bdi>: <bdi>card refused`, page)
		s.claim("host:8")
		require.Contains(t, s.page("record?id="+r.ID.String()), "host:8", "the worker that has the lease")
	}
}
