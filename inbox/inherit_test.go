package inbox_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
)

func TestInheritFrom(t *testing.T) {
	t.Parallel()
	handled := order("m1")
	outmill.SetCorrelationID(handled, "c1")
	outmill.SetTenantID(handled, "acme")
	outmill.SetTrace(handled, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1")
	outmill.SetKey(handled, "key")
	handled.Metadata.Set("own", "value")

	t.Run("a message gets the correlation, tenant, trace and cause of the handled one", func(t *testing.T) {
		t.Parallel()
		msg := order("m2")
		inbox.InheritFrom(handled, msg)
		require.Equal(t, message.Metadata{
			outmill.MetadataCorrelationID: "c1", outmill.MetadataTenantID: "acme", outmill.MetadataCausationID: "m1",
			outmill.MetadataTraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", outmill.MetadataTraceState: "vendor=1",
		}, msg.Metadata)
	})
	t.Run("a message keeps the ones that it has", func(t *testing.T) {
		t.Parallel()
		msg := order("m2")
		outmill.SetCorrelationID(msg, "c2")
		outmill.SetTenantID(msg, "zenith")
		outmill.SetCausationID(msg, "m0")
		inbox.InheritFrom(handled, msg)
		require.Equal(t, []string{"c2", "zenith", "m0"}, []string{
			msg.Metadata.Get(outmill.MetadataCorrelationID), msg.Metadata.Get(outmill.MetadataTenantID),
			msg.Metadata.Get(outmill.MetadataCausationID),
		})
	})
}
