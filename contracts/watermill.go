package contracts

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
)

// metadataWatermillName is where Watermill's own marshalers put the name.
const metadataWatermillName = "name"

type watermillName struct {
	name    string
	version int
}

type watermillContract struct {
	contract *Contract
	version  int
}

// FromWatermill has the contract take messages that Watermill's own marshalers wrote, which
// have a name such as "orders.OrderPlaced" in the metadata "name", and no version: they count
// as the version given here. A program that moves to contracts reads with it what is still
// on its way.
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
			return fmt.Errorf("%w: FromWatermill(%s, …) is there for %s and %s: keep one of them",
				ErrDuplicateContract, quote(old.name), quote(other.contract.name), quote(c.name))
		}
		r.watermill[old.name] = watermillContract{c, old.version}
	}
	return nil
}

// fromWatermill returns the contract of a message that names none.
func (r *Registry) fromWatermill(msg *message.Message) (watermillContract, bool) {
	old, ok := r.watermill[msg.Metadata.Get(metadataWatermillName)]
	return old, ok
}
