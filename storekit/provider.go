package storekit

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
)

// OpenURL makes the Open of an outmill.Provider: configOf takes the settings of the store
// from the parameters of a URL, and open opens the store with these settings and the
// remaining URL.
func OpenURL[Config any, Store outmill.Store](
	configOf func(url string) (rest string, config Config, err error),
	open func(ctx context.Context, rest string, config Config, logger watermill.LoggerAdapter) (Store, error),
) func(ctx context.Context, url string, logger watermill.LoggerAdapter) (outmill.Store, error) {
	return func(ctx context.Context, url string, logger watermill.LoggerAdapter) (outmill.Store, error) {
		rest, config, err := configOf(url)
		if err != nil {
			return nil, err
		}
		store, err := open(ctx, rest, config, logger)
		if err != nil {
			return nil, err
		}
		return store, nil
	}
}
