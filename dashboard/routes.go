package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/tenants"
)

// route is what a path does. A change has a page that asks for confirmation (GET), whose form
// does it (POST).
type route struct {
	get, post func(c *call) error
	// open needs no login.
	open bool
	// change is refused unless Config.AllowChanges is set.
	change bool
	// stream has no end.
	stream bool
}

func routes() map[string]route {
	return map[string]route{
		"":          {get: overviewPage},
		"topic":     {get: topicPage},
		"groups":    {get: groupsPage},
		"dead":      {get: deadPage},
		"audit":     {get: auditPage},
		"records":   {get: recordsPage},
		"record":    {get: recordPage},
		"find":      {get: findPage},
		"pauses":    {get: pausesPage},
		"joins":     {get: joinsPage},
		"join":      {get: joinPage},
		"sagas":     {get: sagasPage},
		"stores":    {get: storesPage},
		"events":    {get: events, stream: true},
		"login":     {get: loginPage, post: logIn, open: true},
		"logout":    {post: logOut},
		"style.css": {get: static("style.css", "text/css; charset=utf-8"), open: true},
		"icon.svg":  {get: static("icon.svg", "image/svg+xml"), open: true},
		"live.js":   {get: static("live.js", "text/javascript; charset=utf-8"), open: true},

		"requeue":     {get: confirmRequeue, post: requeue, change: true},
		"delete":      {get: confirmDelete, post: deleteRecords, change: true},
		"edit":        {get: editPage, post: edit, change: true},
		"skip":        {get: confirmSkip, post: skip, change: true},
		"pause":       {get: confirmPause, post: pause, change: true},
		"resume":      {get: confirmResume, post: resume, change: true},
		"drop-group":  {get: confirmDropGroup, post: dropGroup, change: true},
		"cancel-join": {get: confirmCancelJoin, post: cancelJoin, change: true},
	}
}

// call is one request.
type call struct {
	*Dashboard
	w http.ResponseWriter
	r *http.Request
	// ctx names the tenant, if the user has chosen one.
	ctx    context.Context
	tenant string
	user   string
	// cookie is the text of the login; "" where Config.User decides.
	cookie string
}

// maxForm is the most bytes of a form.
const maxForm = 4 << 20

// serve checks the login, the method and the right to change, in this order, before the handler
// sees the request.
func (c *call) serve(route route) error {
	if !route.open {
		if c.user = c.who(); c.user == "" {
			return c.refuse()
		}
	}
	do := route.get
	switch c.r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPost:
		do = route.post
	default:
		do = nil
	}
	if do == nil {
		c.w.Header().Set("Allow", route.methods())
		return &problem{http.StatusMethodNotAllowed, "This page does not take the method of the request."}
	}
	if route.change && !c.config.AllowChanges {
		return &problem{http.StatusForbidden, "This dashboard only reads. Its configuration does not allow changes."}
	}
	c.ctx = c.r.Context()
	if !route.stream {
		ctx, cancel := context.WithTimeout(c.ctx, c.config.Timeout)
		defer cancel()
		c.ctx = ctx
	}
	c.tenant = c.r.URL.Query().Get("store")
	if c.r.Method == http.MethodPost {
		c.r.Body = http.MaxBytesReader(c.w, c.r.Body, maxForm)
		if err := c.r.ParseForm(); err != nil {
			return badRequest("The form cannot be read, or is too large.")
		}
		c.tenant = c.r.PostForm.Get("store")
	}
	if route.open {
		// People who are not logged in learn no names of stores.
		c.tenant = ""
	}
	if c.tenant != "" {
		if !slices.Contains(c.tenants(), c.tenant) {
			return &problem{http.StatusNotFound, "There is no store of this name, or it is not open."}
		}
		c.ctx = tenants.WithTenant(c.ctx, c.tenant)
	}
	c.ctx = storekit.WithActor(c.ctx, c.user)
	return do(c)
}

func (r route) methods() string {
	var methods []string
	if r.get != nil {
		methods = append(methods, http.MethodGet, http.MethodHead)
	}
	if r.post != nil {
		methods = append(methods, http.MethodPost)
	}
	return strings.Join(methods, ", ")
}

// who returns the name of the user; "" if nobody is logged in.
func (c *call) who() string {
	if c.config.User != nil {
		return c.config.User(c.r)
	}
	name, cookie := c.login.user(c.r, time.Now())
	c.cookie = cookie
	return name
}

// refuse leads people to the login.
func (c *call) refuse() error {
	if c.config.User != nil {
		return &problem{http.StatusForbidden, "You are not allowed to see this dashboard."}
	}
	path := strings.TrimPrefix(c.r.URL.Path, "/")
	if c.r.Method != http.MethodGet || path == "events" {
		return &problem{http.StatusUnauthorized, "You are not logged in, or the login has ended."}
	}
	next := path
	if c.r.URL.RawQuery != "" {
		next += "?" + c.r.URL.RawQuery
	}
	to := "login"
	if next != "" {
		to += "?" + url.Values{"next": {next}}.Encode()
	}
	c.redirect(to)
	return nil
}

// redirect goes to another page of the dashboard. The address stays relative.
func (c *call) redirect(to string) {
	c.w.Header().Set("Location", to)
	c.w.WriteHeader(http.StatusSeeOther)
}

// page returns the relative address of a page, with the chosen tenant and the pairs of names and
// values, of which empty ones are left out.
func (c *call) page(path string, pairs ...string) string { return address(path, c.tenant, pairs...) }

func address(path, tenant string, pairs ...string) string {
	values := url.Values{}
	if tenant != "" {
		values.Set("store", tenant)
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			values.Set(pairs[i], pairs[i+1])
		}
	}
	if path == "" {
		path = "./"
	}
	if len(values) == 0 {
		return path
	}
	return path + "?" + values.Encode()
}
