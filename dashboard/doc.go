// Package dashboard shows an outbox in a browser, and lets operators change it where the program
// allows that. It is an http.Handler for a mux of yours:
//
//	board, err := dashboard.New(store, dashboard.Config{Token: token, Hosts: []string{"admin.example.com"}}, logger)
//	mux.Handle("/outbox/", http.StripPrefix("/outbox", board))
//	server.RegisterOnShutdown(board.Close) // ends the streams of live updates
//
// The command "outmill dashboard" serves it without a program of yours.
//
// # Safety
//
//   - It only reads unless Config.AllowChanges is set. The handlers refuse changes; the pages
//     also show no buttons for them.
//   - Payloads and metadata are hidden unless Config.ShowPayloads is set, and error texts unless
//     Config.ShowErrors is set, because both are data of users. What is shown is escaped and cut.
//   - Each request needs a login with Config.Token, or the consent of Config.User.
//   - A request whose Host header names another host is refused, so that a page of another
//     site cannot reach a dashboard on this machine by DNS rebinding.
//   - Requests of other sites change nothing (http.CrossOriginProtection, SameSite cookies).
//   - The Content-Security-Policy allows no inline scripts or styles, and no other host.
//
// # Cost
//
// A Dashboard asks the store only while people look. Pages and streams share one count of the
// records, which is repeated after Config.Every at the earliest. Counts end at Config.CountLimit,
// and a search looks at a bounded number of records and offers to continue.
package dashboard
