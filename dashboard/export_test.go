package dashboard

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
