package dashboard

import "time"

// ChangeRoutes are the paths of the routes that change the store.
func ChangeRoutes() (paths []string) {
	for path, route := range routes() {
		if route.change {
			paths = append(paths, path)
		}
	}
	return paths
}

// PostRoutes are the paths of the routes that take a POST.
func PostRoutes() (paths []string) {
	for path, route := range routes() {
		if route.post != nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// ClosedRoutes are the paths of the routes that need a login.
func ClosedRoutes() (paths []string) {
	for path, route := range routes() {
		if !route.open {
			paths = append(paths, path)
		}
	}
	return paths
}

// SetClock sets the clock of the counts.
func (d *Dashboard) SetClock(now func() time.Time) {
	d.counts.mu.Lock()
	defer d.counts.mu.Unlock()
	d.counts.now = now
}

// SetWriteTimeout sets how long a stream waits for a client that reads nothing.
func (d *Dashboard) SetWriteTimeout(timeout time.Duration) { d.writeTimeout = timeout }

// Streams is the number of streams that are open.
func (d *Dashboard) Streams() int { return len(d.streams) }
