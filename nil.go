package outmill

import "reflect"

// IsNil reports whether a handle is nil, or an interface that holds a nil pointer.
// Constructors refuse both with an error, so that no later call panics.
func IsNil(handle any) bool {
	if handle == nil {
		return true
	}
	v := reflect.ValueOf(handle)
	switch v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan, reflect.Interface:
		return v.IsNil()
	default:
		return false
	}
}
