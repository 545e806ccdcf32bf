package outmill

// As returns the role of a store: the store itself where it has the role, else that of
// the store that it wraps. A wrapper, such as one that counts calls, tells which store it
// wraps by a method Unwrap() Store. Without that method the roles that the wrapper lacks
// are lost, so that nobody goes past a wrapper that must see each call.
//
//	waker, ok := outmill.As[storekit.Waker](store)
func As[Role any](store any) (role Role, ok bool) {
	// A wrapper that wraps itself ends here.
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
