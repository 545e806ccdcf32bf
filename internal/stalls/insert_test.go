package main

import (
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const shop = `package shop // sells

import "sync"

const price = 7

func sell(orders chan int, mu *sync.Mutex) (sold int) {
	n := 0
	for o := range orders {
		switch o {
		case 1:
			mu.Lock()
		default:
			n++
		}
		select {
		case <-orders:
			close(orders)
		default:
		}
	}
	<-orders
	return n
}
`

func TestWithPauses(t *testing.T) {
	t.Parallel()

	t.Run("has a pause in front of what calls, sends, receives or returns, and no line moves", func(t *testing.T) {
		t.Parallel()
		changed, err := withPauses("shop/shop.go", []byte(shop))
		require.NoError(t, err)
		plain := regexp.MustCompile(`stall_\.At\(\d+\); `).ReplaceAllString(changed, "PAUSE ")
		want := shop
		for _, s := range []string{"for o := range", "switch o", "mu.Lock()", "select {", "close(orders)", "<-orders\n\treturn", "return n"} {
			require.Equal(t, 1, strings.Count(want, s), s)
			want = strings.Replace(want, s, "PAUSE "+s, 1)
		}
		want = strings.Replace(want, "package shop", `package shop; import stall_ "`+pausing+`"`, 1)
		require.Equal(t, want, plain)
		_, err = parser.ParseFile(token.NewFileSet(), "shop.go", changed, 0)
		require.NoError(t, err)
	})

	t.Run("each place has a number of its own, which the name of the file is a part of", func(t *testing.T) {
		t.Parallel()
		one, err := withPauses("shop/shop.go", []byte(shop))
		require.NoError(t, err)
		other, err := withPauses("shop/other.go", []byte(shop))
		require.NoError(t, err)
		numbers := regexp.MustCompile(`At\((\d+)\)`).FindAllString(one+other, -1)
		different := map[string]bool{}
		for _, n := range numbers {
			different[n] = true
		}
		require.Len(t, different, len(numbers))
	})

	t.Run("leaves a file without such statements alone, and returns the error of one that is no Go", func(t *testing.T) {
		t.Parallel()
		changed, err := withPauses("price.go", []byte("package shop\n\nconst price = 7\n"))
		require.NoError(t, err)
		require.Empty(t, changed)
		_, err = withPauses("bad.go", []byte("no"))
		require.ErrorContains(t, err, "bad.go")
	})
}
