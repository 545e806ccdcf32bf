package outmill

// Registry lets tests look at providers apart from those of the process.
type Registry struct{ inner registry }

// Add is RegisterProvider for this registry, with an error for a panic.
func (r *Registry) Add(p Provider) error { return r.inner.add(p) }

// ForURL picks as Open does.
func (r *Registry) ForURL(url string) (Provider, error) { return r.inner.forURL(url) }
