package contracts

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
)

// metadataWatermillName names the metadata with the type name of Watermill's own marshalers.
const metadataWatermillName = "name"

type watermillName struct {
	name    string
	version int
}

type watermillContract struct {
	contract *Contract
	version  int
}

// FromWatermill lets the contract read messages that Watermill's own marshalers wrote. Such a
// message has a name such as "orders.OrderPlaced" in the metadata "name". It has no version,
// so it counts as the given version. Use it when you move a program to contracts, for the
// messages that are still undelivered.
func FromWatermill(name string, version int) Option {
	return option(func(c *Contract) {
		if name == "" {
			c.refuse("the name of FromWatermill is empty")
		}
		c.watermill = append(c.watermill, watermillName{name, version})
	})
}

func (r *Registry) addWatermill(c *Contract) error {
	for _, old := range c.watermill {
		if other, taken := r.watermill[old.name]; taken {
			return fmt.Errorf("%w: FromWatermill(%s, …) is an option of %s and %s: keep one of them",
				ErrDuplicateContract, quote(old.name), quote(other.contract.name), quote(c.name))
		}
		r.watermill[old.name] = watermillContract{c, old.version}
	}
	return nil
}

// fromWatermill returns the contract for a message with the metadata of Watermill's own
// marshalers.
func (r *Registry) fromWatermill(msg *message.Message) (watermillContract, bool) {
	old, ok := r.watermill[msg.Metadata.Get(metadataWatermillName)]
	return old, ok
}
