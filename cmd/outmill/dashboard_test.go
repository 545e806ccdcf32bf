package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

// startBoard runs outmill dashboard on a free port, and returns its address.
func startBoard(t *testing.T, env []string, args ...string) (d *daemon, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Minute)
	d = &daemon{cmd: exec.CommandContext(ctx, binary, append([]string{"dashboard", "--listen", "127.0.0.1:0"}, args...)...)}
	d.cmd.Env = append(os.Environ(), env...)
	stderr, err := d.cmd.StderrPipe()
	require.NoError(t, err)
	d.lines = bufio.NewScanner(stderr)
	require.NoError(t, d.cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = d.cmd.Wait()
	})
	return d, d.await(t, `^Serving the dashboard at (http://127\.0\.0\.1:\d+/)$`)[1]
}

// browser is a client that logs in with the token and keeps the cookie.
type browser struct {
	address string
	cookies []*http.Cookie
}

func logIn(t *testing.T, address, token string) browser {
	t.Helper()
	b := browser{address: address}
	response := b.ask(t, http.MethodPost, "login", url.Values{"token": {token}, "name": {"ann"}})
	defer response.Body.Close()
	require.Equal(t, http.StatusSeeOther, response.StatusCode)
	b.cookies = response.Cookies()
	return b
}

func (b browser) ask(t *testing.T, method, path string, form url.Values) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, b.address+path, strings.NewReader(form.Encode()))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, cookie := range b.cookies {
		request.AddCookie(cookie)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	require.NoError(t, err)
	return response
}

func (b browser) read(t *testing.T, path string) (code int, body string) {
	t.Helper()
	response := b.ask(t, http.MethodGet, path, nil)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

func TestDashboard(t *testing.T) {
	t.Parallel()

	t.Run("the dashboard only reads, makes its token, and ends with 0 while a page is live", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			w.register(t, "billing", "orders")
			w.append(t, orders(1)...)
			w.kill(t, "billing", "orders", "card S3CRET was refused")
			d, address := startBoard(t, nil, w.url)
			token := d.await(t, `^Token for the login: (\S{16,})$`)[1]
			code, _ := browser{address: address}.read(t, "")
			require.Equal(t, http.StatusSeeOther, code)
			b := logIn(t, address, token)
			_, body := b.read(t, "records?status=dead")
			require.Contains(t, body, ">orders<")
			require.NotContains(t, body, "S3CRET")
			response := b.ask(t, http.MethodPost, "requeue", url.Values{"status": {"dead"}})
			response.Body.Close()
			require.Equal(t, http.StatusForbidden, response.StatusCode)
			live := b.ask(t, http.MethodGet, "events?view=overview", nil)
			defer live.Body.Close()
			require.Equal(t, "text/event-stream", live.Header.Get("Content-Type"))
			require.Equal(t, exitOK, d.stop(t), d.all.String())
			require.Equal(t, 1, w.statusOf(t, "billing", "orders").Dead)
		})
	})

	t.Run("changes are made where they are allowed, and logged with the user", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.register(t, "billing", "orders")
		w.append(t, orders(3)...)
		w.kill(t, "billing", "orders", "card S3CRET was refused")
		const token = "a token from the environment"
		d, address := startBoard(t, []string{tokenVariable + "=" + token}, w.url, "--allow-changes", "--errors", "--payload")
		b := logIn(t, address, token)
		_, body := b.read(t, "records?status=dead")
		require.Contains(t, body, "card S3CRET was refused")
		response := b.ask(t, http.MethodPost, "requeue", url.Values{"status": {"dead"}})
		response.Body.Close()
		require.Equal(t, http.StatusOK, response.StatusCode)
		require.Equal(t, 3, w.statusOf(t, "billing", "orders").Pending)
		d.await(t, `changed the store.*user=ann`)
		require.Equal(t, exitOK, d.stop(t))
		require.NotContains(t, d.all.String(), token)
	})

	t.Run("the stores of a configuration file are one dashboard", func(t *testing.T) {
		t.Parallel()
		acme, zebra := newWorld(t), newWorld(t)
		acme.append(t, &outmill.Record{Topic: "orders"})
		config := writeFile(t, "to: \"memory:\"\ntenants:\n- {key: acme, url: \""+acme.url+"\"}\n- {key: zebra, url: \""+zebra.url+"\"}\n")
		const token = "a token from a file, first line"
		_, address := startBoard(t, nil, "--config", config, "--token-file", writeFile(t, token+"\nanything\n"))
		_, body := logIn(t, address, token).read(t, "stores")
		require.Contains(t, body, ">acme<")
		require.Contains(t, body, ">zebra<")
	})

	t.Run("wrong arguments are refused", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		got := tool(t, "dashboard", w.url, "--token-file", writeFile(t, "\n"))
		require.Equal(t, exitUsage, got.code, got.stderr)
		got = tool(t, "dashboard", w.url, "--token-file", writeFile(t, "short"))
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, "want 16 or more")
		require.NotContains(t, got.stderr, "short\n")
		require.Equal(t, exitFailed, tool(t, "dashboard", w.url, "--listen", "nowhere").code)
		require.Equal(t, exitUsage, tool(t, "dashboard", w.url, "--listen", "").code, "it would serve at all addresses")
		require.Equal(t, exitUsage, tool(t, "dashboard", w.url, "extra").code)
	})
	t.Run("without --listen it takes an address of this machine only", func(t *testing.T) {
		t.Parallel()
		// The address is taken, by this test or by another program, so the command names it and ends.
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:8026")
		if err == nil {
			defer listener.Close()
		}
		got := tool(t, "dashboard", newWorld(t).url)
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, "--listen: listen tcp 127.0.0.1:8026")
	})
}
