// Command tx-gorm publishes in a transaction of gorm (gorm.io/gorm). A subscriber
// gets the committed messages and no others.
//
//	go run ./tx-gorm
//	go run ./tx-gorm -database postgres://user:password@localhost:5432/postgres
//	go run ./tx-gorm -database mysql://user:password@localhost:3306
package main

import (
	"context"
	"io"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/libtnb/sqlite"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/outmill/outmill/_examples/internal/example"
)

func main() { example.Main(example.OnSQL, run) }

// Sale is a model of gorm, in the table sales.
type Sale struct {
	Item string `gorm:"primaryKey"`
}

type shop struct {
	*example.SQL
	gorm *gorm.DB
}

func run(ctx context.Context, db *example.SQL, out io.Writer) error {
	orm, err := open(db)
	if err != nil {
		return err
	}
	if err := orm.WithContext(ctx).AutoMigrate(&Sale{}); err != nil {
		return err
	}
	s := &shop{db, orm}
	return s.Show(ctx, out, example.TwoSales(s.sell))
}

// open makes gorm use the pool of the application. This dialector for SQLite uses the
// store's driver, modernc.org/sqlite, and needs no cgo.
func open(db *example.SQL) (*gorm.DB, error) {
	dialector := sqlite.New(sqlite.Config{Conn: db.DB})
	switch db.Dialect {
	case example.PostgreSQL:
		dialector = postgres.New(postgres.Config{Conn: db.DB})
	case example.MySQL:
		dialector = mysql.New(mysql.Config{Conn: db.DB})
	}
	return gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
}

// sell passes the connection that the *gorm.DB of a transaction uses to WithTx. WithTx
// refuses the *gorm.DB itself, because a *gorm.DB need not be a transaction.
func (s *shop) sell(ctx context.Context, item string, ending error) error {
	return s.gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&Sale{Item: item}).Error; err != nil {
			return err
		}
		ctx := s.Store.WithTx(ctx, tx.Statement.ConnPool)
		msg := message.NewMessage(watermill.NewUUID(), message.Payload(item))
		if err := s.Publisher.WithContext(ctx).Publish(example.Topic, msg); err != nil {
			return err
		}
		return ending
	})
}
