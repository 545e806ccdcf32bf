package dashboard_test

import (
	"context"
	"errors"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

// bare is a store without the roles of package storekit.
type bare struct{ outmill.Store }

// counting counts the looks at a store, which can fail, and find more records with each look.
type counting struct {
	outmill.Store
	looks           atomic.Int64
	broken, growing atomic.Bool
}

func (c *counting) Unwrap() outmill.Store { return c.Store }

func (c *counting) Stats(ctx context.Context, limit int) ([]outmill.TopicStats, error) {
	c.looks.Add(1)
	if c.broken.Load() {
		return nil, errors.New("cannot connect to postgres://shop:S3CRET@db/shop")
	}
	rows, err := c.Store.Stats(ctx, limit)
	for i := range rows {
		if c.growing.Load() {
			rows[i].Leased = int(c.looks.Load())
		}
	}
	return rows, err
}

func serveLocal(t *testing.T, handler http.Handler, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	r.Host = "localhost"
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

// crawl follows each link from a page. None leaves the prefix, and each has an answer.
func crawl(t *testing.T, handler http.Handler, prefix string) {
	t.Helper()
	link := regexp.MustCompile(`(?:href|src|data-events|action)="([^"]*)"`)
	seen := map[string]bool{prefix: true}
	for queue := []string{prefix}; len(queue) > 0; queue = queue[1:] {
		base, err := url.Parse("http://localhost" + queue[0])
		require.NoError(t, err)
		if strings.HasPrefix(base.Path, prefix+"events") || base.Path == prefix+"logout" {
			continue
		}
		got := serveLocal(t, handler, http.MethodGet, queue[0])
		if got.Code == http.StatusSeeOther {
			to, err := base.Parse(got.Header().Get("Location"))
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(to.Path, prefix), to)
			continue
		}
		require.Contains(t, []int{http.StatusOK, http.StatusNotFound, http.StatusBadRequest}, got.Code, "%s: %s", queue[0], got.Body)
		for _, found := range link.FindAllStringSubmatch(got.Body.String(), -1) {
			to, err := base.Parse(html.UnescapeString(found[1]))
			require.NoError(t, err)
			require.Equal(t, "localhost", to.Host, "%s links to %s", queue[0], found[1])
			require.True(t, strings.HasPrefix(to.Path, prefix), "%s links to %s", queue[0], found[1])
			to.Fragment = ""
			if address := to.RequestURI(); !seen[address] && len(seen) < 300 {
				seen[address] = true
				queue = append(queue, address)
			}
		}
	}
	require.Greater(t, len(seen), 30)
}
