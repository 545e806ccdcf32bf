package dashboard

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/outmill/outmill"
)

//go:embed templates static
var files embed.FS

// pages are the templates: each page is the layout with the page's own file.
type pages struct{ byName map[string]*template.Template }

func parsePages() (*pages, error) {
	layout, err := template.New("layout").Funcs(functions).ParseFS(files, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, fmt.Errorf("outmill/dashboard: templates: %w", err)
	}
	entries, err := files.ReadDir("templates")
	if err != nil {
		return nil, fmt.Errorf("outmill/dashboard: templates: %w", err)
	}
	all := &pages{map[string]*template.Template{}}
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), ".html")
		if name == "layout" || name == "parts" {
			continue
		}
		page, err := layout.Clone()
		if err == nil {
			page, err = page.ParseFS(files, path.Join("templates", entry.Name()))
		}
		if err != nil {
			return nil, fmt.Errorf("outmill/dashboard: templates: %w", err)
		}
		all.byName[name] = page
	}
	return all, nil
}

// functions are those of the templates. None of them returns HTML.
var functions = template.FuncMap{
	"cut":     cut,
	"number":  number,
	"age":     age,
	"iso":     func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"shown":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"ago":     ago,
	"clean":   clean,
	"dead":    func(s outmill.Status) bool { return s == outmill.StatusDead },
	"pending": func(s outmill.Status) bool { return s == outmill.StatusPending },
}

// view is what a template gets.
type view struct {
	c *call
	// Page is the name of the page, Title its heading.
	Page, Title string
	// Board is the title of the dashboard.
	Board string
	User  string
	// Token says that people log in and out.
	Token   bool
	Changes bool
	// Tenant is the chosen store of many; "" is all of them.
	Tenant string
	// Live is the address of the stream of this page; "" is a page without one.
	Live string
	Now  time.Time
	// Errors and Payloads say whether these are shown.
	Errors, Payloads bool
	Data             any
}

// Link returns the address of a page.
func (v *view) Link(page string, pairs ...string) string { return v.c.page(page, pairs...) }

// In returns the address of a page in another store than the chosen one, unless it is "".
func (v *view) In(store, page string, pairs ...string) string {
	if store == "" {
		return v.c.page(page, pairs...)
	}
	return address(page, store, pairs...)
}

func (c *call) view(name, title string, data any) *view {
	v := &view{
		c: c, Page: name, Title: title, Board: c.config.Name, User: c.user, Token: c.config.User == nil, Changes: c.config.AllowChanges,
		Tenant: c.tenant, Now: time.Now(), Errors: c.config.ShowErrors, Payloads: c.config.ShowPayloads, Data: data,
	}
	if c.user == "" {
		// The name may be that of the store.
		v.Board = "Outmill"
	}
	return v
}

// render writes a page. It is complete before its first byte is written.
func (c *call) render(status int, name, title string, data any) error {
	return c.renderView(status, c.view(name, title, data))
}

// renderLive writes a page whose block "live" is repeated by a stream.
func (c *call) renderLive(name, title string, data any, pairs ...string) error {
	v := c.view(name, title, data)
	v.Live = c.page("events", append([]string{"view", name}, pairs...)...)
	return c.renderView(http.StatusOK, v)
}

func (c *call) renderView(status int, v *view) error {
	var page bytes.Buffer
	if err := c.pages.byName[v.Page].ExecuteTemplate(&page, "layout.html", v); err != nil {
		return fmt.Errorf("outmill/dashboard: page %s: %w", v.Page, err)
	}
	c.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	c.w.WriteHeader(status)
	if c.r.Method != http.MethodHead {
		// A browser that hangs up needs no answer.
		_, _ = c.w.Write(page.Bytes())
	}
	return nil
}

// fail writes the page of an error.
func (c *call) fail(err error) {
	p := c.asProblem(err)
	v := c.view("problem", http.StatusText(p.status), p.text)
	if c.user == "" {
		v.Token = false
	}
	if err := c.renderView(p.status, v); err != nil {
		http.Error(c.w, p.text, p.status)
	}
}

// static serves a file of the dashboard.
func static(name, contentType string) func(c *call) error {
	return func(c *call) error {
		text, err := files.ReadFile(path.Join("static", name))
		if err != nil {
			return err
		}
		c.w.Header().Set("Content-Type", contentType)
		// Relative addresses have no version, so browsers ask again.
		c.w.Header().Set("Cache-Control", "no-cache")
		_, _ = c.w.Write(text)
		return nil
	}
}
