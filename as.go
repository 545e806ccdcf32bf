package outmill

// As returns a role of a store. If the store itself lacks the role, As looks at the store
// that it wraps. A wrapper, such as one that counts calls, names the wrapped store by a
// method Unwrap() Store. Without that method, callers lose the roles that the wrapper
// lacks: a wrapper that must see each call leaves the method out, and no caller gets past
// it.
//
//	waker, ok := outmill.As[roles.Waker](store)
func As[Role any](store any) (role Role, ok bool) {
	// The bound ends the loop for a wrapper that wraps itself.
	const maxWrappers = 100
	for range maxWrappers {
		if IsNil(store) {
			break
		}
		if role, ok = store.(Role); ok {
			return role, true
		}
		wrapper, wraps := store.(interface{ Unwrap() Store })
		if !wraps {
			break
		}
		store = wrapper.Unwrap()
	}
	return role, false
}
