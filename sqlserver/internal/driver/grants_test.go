package driver_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	sqlserver "github.com/outmill/outmill/sqlserver/internal/driver"
)

func TestGrants(t *testing.T) {
	t.Parallel()
	t.Run("the rights are for each table, function, type and procedure of the schema (OBX-124)", func(t *testing.T) {
		t.Parallel()
		d := sqlserver.New(nil, sqlserver.Config{Schema: "shop", Table: "Orders"})
		schema, err := d.StatementsFrom(0)
		require.NoError(t, err)
		grants, n := strings.Join(d.Grants("a ]role"), "\n")+"\n", 0
		created := regexp.MustCompile(`(?m)^CREATE (TABLE|FUNCTION|PROCEDURE|TYPE) (\S+\])`)
		for _, found := range created.FindAllStringSubmatch(strings.Join(schema, "\n"), -1) {
			on := " ON " + found[2]
			if found[1] == "TYPE" {
				on = " ON TYPE::" + found[2]
			}
			require.Contains(t, grants, on+" TO [a ]]role]\n")
			n++
		}
		require.Len(t, d.Grants("app"), n)
		require.Equal(t, 13, n)
		require.Contains(t, d.Permissions(), "UPDATE OBJECT [shop].[OrdersMeta]")
		require.Contains(t, d.Permissions(), "EXECUTE TYPE [shop].[OrdersNew]")
		require.NotContains(t, d.Permissions(), "EXECUTE OBJECT [shop].[Orders_Claim]", "the driver does not call it")
	})
}
