package chromiumtest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Page is a tab of a browser of its own. Its methods fail the test.
type Page struct {
	testing.TB
	browser *browser
	session string

	mu sync.Mutex
	// complaints are what the page's console and the browser reported.
	complaints []string
	loads      chan struct{}
}

// Open starts a browser with an empty page for the test, or skips the test. Every host name leads to this
// machine.
func Open(tb testing.TB) *Page {
	tb.Helper()
	p := &Page{TB: tb, browser: start(tb), loads: make(chan struct{}, 100)}
	p.browser.mu.Lock()
	p.browser.events = p.note
	p.browser.mu.Unlock()
	var target struct{ TargetID string }
	p.send("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	p.send("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	p.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		p.send(domain+".enable", map[string]any{}, nil)
	}
	p.Size(1280, 900)
	return p
}

func (p *Page) send(method string, params, result any) {
	p.Helper()
	require.NoError(p, p.browser.command(p.Context(), p.session, method, params, result))
}

// note takes in an event.
func (p *Page) note(e event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.Method {
	case "Page.loadEventFired":
		select {
		case p.loads <- struct{}{}:
		default:
		}
	case "Log.entryAdded":
		var log struct {
			Entry struct{ Level, Text, URL string }
		}
		if json.Unmarshal(e.Params, &log) == nil && log.Entry.Level != "verbose" && log.Entry.Level != "info" {
			p.complaints = append(p.complaints, log.Entry.Text+" "+log.Entry.URL)
		}
	case "Runtime.exceptionThrown", "Runtime.consoleAPICalled":
		p.complaints = append(p.complaints, string(e.Params))
	}
}

// Complaints returns and forgets what the console and the browser reported: errors of scripts,
// violations of the Content-Security-Policy, requests that failed.
func (p *Page) Complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.Clone(p.complaints)
	p.complaints = nil
	return all
}

// Go opens an address, and waits until it is loaded.
func (p *Page) Go(address string) {
	p.Helper()
	p.Loading(func() { p.send("Page.navigate", map[string]any{"url": address}, nil) })
}

// Loading waits until the page that do leads to is loaded.
func (p *Page) Loading(do func()) {
	p.Helper()
	for len(p.loads) > 0 {
		<-p.loads
	}
	do()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	select {
	case <-p.loads:
	case <-ctx.Done():
		require.NoError(p, ctx.Err(), "no page was loaded; this one is %s",
			Eval[string](p, "location.href + ' ' + document.activeElement.outerHTML"))
	case <-p.browser.ended:
		require.Fail(p, "the browser has ended")
	}
}

// Eval evaluates an expression, waits for it if it is a promise, and decodes its value.
func Eval[T any](p *Page, expression string) (value T) {
	p.Helper()
	var result struct {
		Result           struct{ Value T }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	p.send("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &result)
	if result.ExceptionDetails != nil {
		require.Fail(p, "the expression failed", "%s: %s", expression, result.ExceptionDetails.Exception.Description)
	}
	return result.Result.Value
}

// Await waits until the expression is true, which it looks at with each frame.
func (p *Page) Await(expression string) {
	p.Helper()
	Eval[bool](p, fmt.Sprintf(`new Promise((done) => {
		const look = () => { if (%s) { done(true); } else { requestAnimationFrame(look); } };
		look();
	})`, expression))
}

// Focused waits until the element with this id has the focus. It works without scripts of the page.
func (p *Page) Focused(id string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	for Eval[string](p, "document.activeElement.id") != id {
		require.NoError(p, ctx.Err(), "the focus does not come to %s", id)
	}
}

// Text is the text of the first element that the selector finds.
func (p *Page) Text(selector string) string {
	p.Helper()
	return Eval[string](p, fmt.Sprintf("document.querySelector(%q).innerText", selector))
}

// keys are the codes of keys that make no text.
var keys = map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, "End": 35}

// Press presses a key: "Tab", "Enter", "Escape" or "End".
func (p *Page) Press(key string) {
	p.Helper()
	code, known := keys[key]
	require.True(p, known, key)
	down := map[string]any{"type": "rawKeyDown", "key": key, "code": key, "windowsVirtualKeyCode": code}
	if key == "Enter" {
		down["type"], down["text"] = "keyDown", "\r"
	}
	p.send("Input.dispatchKeyEvent", down, nil)
	p.send("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code}, nil)
}

// Type types text into the element that has the focus.
func (p *Page) Type(text string) {
	p.Helper()
	p.send("Input.insertText", map[string]any{"text": text}, nil)
}

// TabTo presses Tab until the focus is on an element whose text, or label, begins with text.
func (p *Page) TabTo(text string) {
	p.Helper()
	var passed []string
	for range 100 {
		p.Press("Tab")
		name := Eval[string](p, `(() => { const e = document.activeElement;
			return (e.labels?.[0] ?? e).innerText || e.value || "" })()`)
		if strings.HasPrefix(name, text) {
			return
		}
		passed = append(passed, name)
	}
	require.Fail(p, "the focus comes to no such element", "%s: %q", text, passed)
}

// Size sets the size of the window in CSS pixels.
func (p *Page) Size(width, height int) {
	p.Helper()
	p.send("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
}

// Dark sets the system's preference for dark or light pages.
func (p *Page) Dark(dark bool) {
	p.Helper()
	value := "light"
	if dark {
		value = "dark"
	}
	feature := map[string]string{"name": "prefers-color-scheme", "value": value}
	p.send("Emulation.setEmulatedMedia", map[string]any{"features": []any{feature}}, nil)
}

// Scripts turns the scripts of pages on or off.
func (p *Page) Scripts(on bool) {
	p.Helper()
	p.send("Emulation.setScriptExecutionDisabled", map[string]any{"value": !on}, nil)
}

// Shot writes a picture of the window to a file.
func (p *Page) Shot(file string) {
	p.Helper()
	var shot struct{ Data string }
	p.send("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	picture, err := base64.StdEncoding.DecodeString(shot.Data)
	require.NoError(p, err)
	require.NoError(p, os.WriteFile(file, picture, 0o644))
}
