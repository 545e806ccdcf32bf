package main

import (
	"context"

	"github.com/libtnb/sqlite"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/outmill/outmill/_examples/internal/example"
)

// Sale is a model of gorm and bun, in the table sales.
type Sale struct {
	Item string `gorm:"primaryKey" bun:",pk"`
}

func withGORM(db *example.SQL) (library, error) {
	dialector := sqlite.New(sqlite.Config{Conn: db.DB})
	switch db.Dialect {
	case example.PostgreSQL:
		dialector = postgres.New(postgres.Config{Conn: db.DB})
	case example.MySQL:
		dialector = mysql.New(mysql.Config{Conn: db.DB})
	}
	pool, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
	return library{
		name: "gorm",
		transact: func(ctx context.Context, fn func(ctx context.Context) error) error {
			return pool.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
				return fn(context.WithValue(db.Store.WithTx(ctx, tx.Statement.ConnPool), txKey{}, tx))
			})
		},
		sell: func(ctx context.Context, item string) error {
			tx := ctx.Value(txKey{}).(*gorm.DB)
			return tx.WithContext(ctx).Create(&Sale{Item: item}).Error
		},
	}, err
}
