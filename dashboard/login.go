package dashboard

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	cookieName = "outmill_dashboard"
	// loginLasts is how long a cookie is valid.
	loginLasts = 12 * time.Hour
	// maxUserName is the most characters of a name that a user gives at login.
	maxUserName = 80
	defaultUser = "dashboard"
)

// login makes and checks cookies. A cookie is "name.end.signature": it needs no memory, so that
// it is valid in each replica, and has no part of the token.
type login struct {
	token  string
	secure bool
	// rights are what the cookie allows: a dashboard with other rights refuses it.
	rights string
}

// rightsOf names what a login to the dashboard of this configuration allows.
func rightsOf(config Config, store string) string {
	return fmt.Sprintf("%q %t %t %t", store, config.AllowChanges, config.ShowPayloads, config.ShowErrors)
}

// mountOf is the path of the dashboard as this server sees it: what http.StripPrefix has cut off.
func mountOf(r *http.Request) string {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	mount, found := strings.CutSuffix(path, r.URL.EscapedPath())
	if !found {
		return ""
	}
	return strings.TrimSuffix(mount, "/")
}

// accepts compares in constant time.
func (l login) accepts(token string) bool {
	given, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(l.token))
	return subtle.ConstantTimeCompare(given[:], want[:]) == 1
}

// sign binds the text to the mount and to the rights.
func (l login) sign(text, mount string) string {
	mac := hmac.New(sha256.New, []byte(l.token))
	fmt.Fprintf(mac, "outmill dashboard login %s %q %q", text, mount, l.rights)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// cookie has no path: browsers take the directory of the login page, which is the dashboard's
// prefix, whatever it is.
func (l login) cookie(user, mount string, now time.Time, tls bool) *http.Cookie {
	text := base64.RawURLEncoding.EncodeToString([]byte(user)) + "." + strconv.FormatInt(now.Add(loginLasts).Unix(), 10)
	return &http.Cookie{
		Name: cookieName, Value: text + "." + l.sign(text, mount), MaxAge: int(loginLasts / time.Second),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: tls || l.secure,
	}
}

// user returns the name in the cookie, and the cookie's text; "" if it is not valid.
func (l login) user(r *http.Request, now time.Time) (name, cookie string) {
	mount := mountOf(r)
	// Dashboards under several prefixes of one host may send several cookies of that name.
	for _, cookie := range r.CookiesNamed(cookieName) {
		parts := strings.Split(cookie.Value, ".")
		if len(parts) != 3 || !hmac.Equal([]byte(parts[2]), []byte(l.sign(parts[0]+"."+parts[1], mount))) {
			continue
		}
		end, err := strconv.ParseInt(parts[1], 10, 64)
		if err != nil || now.Unix() >= end {
			continue
		}
		if name, err := base64.RawURLEncoding.DecodeString(parts[0]); err == nil && len(name) > 0 {
			return string(name), cookie.Value
		}
	}
	return "", ""
}

type loginData struct {
	Next  string
	Wrong bool
}

func loginPage(c *call) error {
	if c.config.User != nil {
		return &problem{http.StatusNotFound, "There is no such page."}
	}
	return c.render(http.StatusOK, "login", "Log in", loginData{Next: c.r.URL.Query().Get("next")})
}

func logIn(c *call) error {
	if c.config.User != nil {
		return &problem{http.StatusNotFound, "There is no such page."}
	}
	next := c.r.PostFormValue("next")
	address := addressOf(c.r)
	right, wait := c.tries.check(address, time.Now(), func() bool { return c.login.accepts(strings.TrimSpace(c.r.PostFormValue("token"))) })
	if wait > 0 {
		c.noteLogin("A login to the dashboard was refused: too many tokens were wrong within a minute", address, "")
		c.w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		return &problem{http.StatusTooManyRequests, "Too many tokens were wrong. Wait a minute, and try again."}
	}
	if !right {
		c.noteLogin("A login to the dashboard failed: the token is wrong", address, "")
		return c.render(http.StatusUnauthorized, "login", "Log in", loginData{Next: next, Wrong: true})
	}
	name := cut(strings.TrimSpace(c.r.PostFormValue("name")), maxUserName)
	if name == "" {
		name = defaultUser
	}
	c.noteLogin("A user has logged in to the dashboard", address, name)
	http.SetCookie(c.w, c.login.cookie(name, mountOf(c.r), time.Now(), c.r.TLS != nil))
	c.redirect(c.ownPage(next))
	return nil
}

func logOut(c *call) error {
	cookie := c.login.cookie("", "", time.Now(), c.r.TLS != nil)
	cookie.Value, cookie.MaxAge = "", -1
	http.SetCookie(c.w, cookie)
	c.redirect("login")
	return nil
}

// ownPage returns the page to go to after the login: only one of the dashboard, so that a link to
// the login leads to no other site.
func (c *call) ownPage(next string) string {
	path, query, _ := strings.Cut(next, "?")
	route, found := c.routes[path]
	if !found || route.get == nil || route.open || path == "" {
		return "./"
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return path
	}
	return path + "?" + values.Encode()
}
