package engine

// mapped makes something of each item of a list.
func mapped[T, U any](list []T, of func(item T) U) []U {
	made := make([]U, len(list))
	for i, item := range list {
		made[i] = of(item)
	}
	return made
}

// mappedOr is mapped up to the first error, and nil after it.
func mappedOr[T, U any](list []T, of func(item T) (U, error)) (made []U, err error) {
	made = make([]U, len(list))
	for i, item := range list {
		if made[i], err = of(item); err != nil {
			return nil, err
		}
	}
	return made, nil
}
