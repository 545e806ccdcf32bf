package connect_test

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
)

var errOpen = errors.New("the provider cannot open")

// The providers of this test binary only record which provider opens which URL. The tests
// of the stores' packages open real stores.
func init() {
	outmill.RegisterProvider(outmill.Provider{Name: "high", Schemes: []string{"high", "high+tls"}, Priority: 1020, Open: openFake})
	outmill.RegisterProvider(outmill.Provider{Name: "low", Schemes: []string{"low"}, Priority: 1010, Open: openFake})
	outmill.RegisterProvider(outmill.Provider{Name: "alsolow", Schemes: []string{"alsolow"}, Priority: 1010, Open: openFake})
	outmill.RegisterProvider(outmill.Provider{Name: "broken", Schemes: []string{"broken"}, Priority: -1,
		Open: func(context.Context, string, watermill.LoggerAdapter) (outmill.Store, error) { return nil, errOpen }})
}

type openedStore struct {
	outmill.Store
	url    string
	logger watermill.LoggerAdapter
}

func (*openedStore) Name() string { return "fake" }

func openFake(_ context.Context, url string, logger watermill.LoggerAdapter) (outmill.Store, error) {
	return &openedStore{url: url, logger: logger}, nil
}
