package outmill

// Registry lets tests use a registry of their own instead of that of the process.
type Registry struct{ inner registry }

// Add does the work of RegisterProvider for this registry, and returns an error instead of
// a panic.
func (r *Registry) Add(p Provider) error { return r.inner.add(p) }

// ForURL selects the provider as Open does.
func (r *Registry) ForURL(url string) (Provider, error) { return r.inner.forURL(url) }
