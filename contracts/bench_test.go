package contracts_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/contracts"
)

// BenchmarkMarshaler compares with Watermill's marshaler, whose encoding is the same:
//
//	go test ./contracts -run '^$' -bench Marshaler -count 6
func BenchmarkMarshaler(b *testing.B) {
	event := &Page[OrderPlaced]{Items: []OrderPlaced{{ID: "7", Cents: 1999, Currency: "EUR"}, {ID: "8", Cents: 5, Currency: "EUR"}}}
	for _, marshaler := range []struct {
		name string
		cqrs.CommandEventMarshaler
	}{
		{"contracts", shop(b).Marshaler(contracts.MarshalerConfig{})},
		{"watermill", cqrs.JSONMarshaler{}},
	} {
		for _, kind := range []struct {
			name  string
			value any
		}{{"pointer", event}, {"value", *event}} {
			b.Run("Marshal/"+kind.name+"/"+marshaler.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := marshaler.Marshal(kind.value); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run("Unmarshal/"+marshaler.name, func(b *testing.B) {
			msg, err := marshaler.Marshal(event)
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				if err := marshaler.Unmarshal(msg, &Page[OrderPlaced]{}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("Name/"+marshaler.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				marshaler.Name(event)
			}
		})
	}
	b.Run("Unmarshal/upcast from 1 to 3", func(b *testing.B) {
		marshaler := shop(b).Marshaler(contracts.MarshalerConfig{})
		msg := arrive(orderPlaced, "1", `{"id":"7","total":19.99}`)
		b.ReportAllocs()
		for b.Loop() {
			if err := marshaler.Unmarshal(msg, &OrderPlaced{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
