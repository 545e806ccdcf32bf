package drivertest

import (
	"fmt"
	"reflect"

	"github.com/outmill/outmill/engine/driver"
)

// askBrought says what the page may bring. It follows from the rest of the ask.
func askBrought(ask *driver.Ask) {
	ask.Want = map[int]driver.Want{1: driver.Metadata, 2: driver.Payload, 3: driver.Metadata, all: driver.Metadata | driver.Payload}[ask.Limit]
	ask.MaxBytes = map[int]int{0: 1 << 20, 1: 150, all: 300}[ask.Due]
	if ask.MaxRows = all; ask.Lock {
		ask.MaxRows = 1
	}
}

// requireBrought returns an error unless what a page brings is what Load returns of its first rows, as many and as much as was asked for.
func (w *walk) requireBrought(t driver.Tx, ask driver.Ask, p driver.Page) error {
	if len(p.Contents) == 0 {
		return nil
	}
	rows := p.Ready[:min(len(p.Ready), ask.MaxRows)]
	loaded, err := t.Load(w.ctx, rows, ask.Want)
	if err != nil {
		return err
	}
	found, bytes := 0, 0
	for i, r := range rows {
		c, came := p.Contents[r.ID]
		if !came {
			continue
		}
		found, bytes = found+1, bytes+r.Size
		if brought, stored := content(c), content(loaded[i]); !reflect.DeepEqual(stored, brought) {
			return fmt.Errorf("Page of %+v brings another content of %v: %v instead of %v", ask, r.ID, brought.Record, stored.Record)
		}
	}
	if found < len(p.Contents) || bytes > ask.MaxBytes || ask.Want == 0 {
		return fmt.Errorf("Page of %+v brings contents of %d rows, %d of them among the first, of %d bytes", ask, len(p.Contents), found, bytes)
	}
	return nil
}
