package storekit

import (
	"errors"
	"fmt"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// CheckRetainSaga reports arguments of RetainSaga that make no sense, as ErrInvalidRecord or
// ErrInvalidConfig. Stores call it.
func CheckRetainSaga(saga *roles.Saga, retention time.Duration) error {
	err := CheckSaga(saga.Type, saga.Correlation)
	if retention <= 0 {
		err = errors.Join(err, fmt.Errorf("%w: retention is %s: want more than 0", outmill.ErrInvalidConfig, retention))
	}
	return err
}
