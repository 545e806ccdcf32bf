package dashboard_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/dashboard"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/chromiumtest"
)

func TestBrowser(t *testing.T) {
	t.Parallel()

	t.Run("people log in, look, and requeue a dead record with the keyboard alone", func(t *testing.T) {
		t.Parallel()
		page := chromiumtest.Open(t)
		s := newSite(t, newSQLite(t), dashboard.Config{Token: token, AllowChanges: true, ShowErrors: true, Every: 10 * time.Millisecond})
		s.register("billing", "orders")
		s.append(orders(1)...)
		id := s.kill("billing", "orders", "card was refused")[0].ID
		page.Go(s.url + "/")
		require.Equal(t, "Log in", page.Text("h1"))
		page.Focused("token")
		page.Type(token)
		page.Loading(func() { page.Press("Enter") })
		require.Equal(t, "Overview", page.Text("h1"))
		page.TabTo("Skip to the content")
		page.Press("Enter")
		require.Equal(t, "main", chromiumtest.Eval[string](page, "document.activeElement.id"))
		page.TabTo("orders")
		page.Loading(func() { page.Press("Enter") })
		page.TabTo("Dead letters")
		page.Loading(func() { page.Press("Enter") })
		require.Contains(t, page.Text("main"), "card was refused")
		page.TabTo(id.String())
		page.Loading(func() { page.Press("Enter") })
		page.TabTo("Requeue…")
		page.Loading(func() { page.Press("Enter") })
		require.Equal(t, outmill.StatusDead, s.status(id))
		page.TabTo("Requeue")
		page.Loading(func() { page.Press("Enter") })
		require.Contains(t, page.Text("main"), "1 record was requeued.")
		require.Equal(t, outmill.StatusPending, s.status(id))
		require.Empty(t, page.Complaints())
	})

	t.Run("counts change while people look, and the focus and the layout stay", func(t *testing.T) {
		t.Parallel()
		page := chromiumtest.Open(t)
		s := newSite(t, newSQLite(t), dashboard.Config{Every: 10 * time.Millisecond})
		s.register("billing", "orders")
		s.append(orders(1)...)
		page.Go(s.url + "/")
		page.Await(`document.getElementById("live-state").textContent === "Live."`)
		page.TabTo("orders")
		s.append(orders(5)...)
		page.Await(`document.querySelector(".tiles dd").textContent === "6"`)
		require.Equal(t, "orders", chromiumtest.Eval[string](page, "document.activeElement.innerText"))
		s.kill("billing", "orders", "refused")
		page.Await(`document.getElementById("live-news").textContent === "Dead records: 6"`)
		require.Less(t, chromiumtest.Eval[float64](page, `new Promise((done) => new PerformanceObserver((list) =>
			done(list.getEntries().reduce((sum, e) => sum + e.value, 0))).observe({type: "layout-shift", buffered: true}) ||
			setTimeout(() => done(0), 500))`), 0.05)
		page.TabTo("Stop updates")
		page.Press("Enter")
		page.Await(`document.getElementById("live-state").textContent === "Stopped."`)
		require.Empty(t, page.Complaints())
	})

	t.Run("a lost connection is shown, and found again", func(t *testing.T) {
		t.Parallel()
		page := chromiumtest.Open(t)
		s := newSite(t, newSQLite(t), dashboard.Config{Every: 10 * time.Millisecond})
		page.Go(s.url + "/")
		page.Await(`document.getElementById("live-state").textContent === "Live."`)
		s.board.Close()
		page.Await(`document.getElementById("live-state").textContent.startsWith("No connection")`)
	})

	t.Run("each page fits a phone", func(t *testing.T) {
		testenv.Long(t, "all pages in a browser")
		t.Parallel()
		page := chromiumtest.Open(t)
		s := shop(t)
		page.Size(360, 740)
		for _, path := range s.pages() {
			page.Go(s.url + "/" + path)
			require.LessOrEqual(t, chromiumtest.Eval[int](page, "document.documentElement.scrollWidth"), 360, path)
		}
		for _, complaint := range page.Complaints() {
			require.Contains(t, complaint, "404 (Not Found)", "only the page that is not there complains")
		}
	})

	t.Run("each control of each page has a name, and each page one heading and one main part", func(t *testing.T) {
		testenv.Long(t, "all pages in a browser")
		t.Parallel()
		page := chromiumtest.Open(t)
		s := shop(t)
		for _, path := range s.pages() {
			page.Go(s.url + "/" + path)
			require.Empty(t, chromiumtest.Eval[[]string](page, `[
				...document.querySelectorAll("a, button, input:not([type=hidden]), select, textarea")]
				.filter((e) => !(e.labels?.length || e.innerText.trim() || e.getAttribute("aria-label"))).map((e) => e.outerHTML)`), path)
			require.Equal(t, []int{1, 1}, chromiumtest.Eval[[]int](page, `["h1", "main"].map((e) => document.querySelectorAll(e).length)`), path)
		}
	})

	t.Run("a page works without scripts", func(t *testing.T) {
		t.Parallel()
		page := chromiumtest.Open(t)
		s := newSite(t, newSQLite(t), dashboard.Config{Token: token, AllowChanges: true})
		page.Scripts(false)
		page.Go(s.url + "/pause?topic=orders")
		page.Focused("token")
		page.Type(token)
		page.Loading(func() { page.Press("Enter") })
		require.Equal(t, "Pause deliveries", page.Text("h1"))
		page.TabTo("Reason")
		page.Type("the bank is down")
		page.Loading(func() { page.Press("Enter") })
		page.Go(s.url + "/pauses")
		require.Contains(t, page.Text("main"), "the bank is down")
		page.Go(s.url + "/")
		require.Contains(t, page.Text("main"), "Reload the page for new counts.")
	})

	t.Run("a page of another site that rebinds its name gets nothing", func(t *testing.T) {
		t.Parallel()
		page := chromiumtest.Open(t)
		s := newSite(t, newSQLite(t), dashboard.Config{Name: "The shop"})
		_, port, _ := strings.Cut(strings.TrimPrefix(s.url, "http://"), ":")
		page.Go("http://evil.example:" + port + "/")
		require.Contains(t, page.Text("body"), "not served under this host name")
		require.NotContains(t, page.Text("body"), "The shop")
	})

	t.Run("the pictures of the documentation are taken", func(t *testing.T) {
		t.Parallel()
		dir := os.Getenv("OUTMILL_DASHBOARD_PICTURES")
		if dir == "" {
			t.Skip("skipped: pictures for docs/: OUTMILL_DASHBOARD_PICTURES names their directory")
		}
		page := chromiumtest.Open(t)
		s := shop(t)
		s.past(10 * time.Minute)
		page.Size(1180, 620)
		page.Go(s.url + "/")
		page.Await(`document.getElementById("live-state").textContent === "Live."`)
		page.Shot(filepath.Join(dir, "dashboard-light.png"))
		page.Dark(true)
		page.Go(s.url + "/record?id=" + s.dead.String())
		page.Shot(filepath.Join(dir, "dashboard-dark.png"))
		page.Size(390, 760)
		page.Go(s.url + "/records?status=dead")
		page.Shot(filepath.Join(dir, "dashboard-phone.png"))
	})
}

// shop is a site with something on each page.
func shop(t *testing.T) shopSite {
	t.Helper()
	store := newSQLite(t)
	s := newSite(t, store, dashboard.Config{
		Name: "shop", AllowChanges: true, ShowErrors: true, ShowPayloads: true, Every: 50 * time.Millisecond,
		User: func(*http.Request) string { return "ann@example.com" },
	})
	return fill(s, store)
}
