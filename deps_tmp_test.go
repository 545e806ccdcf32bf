package outmill

import (
	_ "github.com/IBM/sarama"
	_ "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	_ "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	_ "github.com/ThreeDotsLabs/watermill/pubsub/tests"
	_ "github.com/ThreeDotsLabs/watermill/components/cqrs"
	_ "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	_ "github.com/stretchr/testify/require"
	_ "github.com/twmb/franz-go/pkg/kadm"
	_ "github.com/twmb/franz-go/pkg/kerr"
	_ "github.com/twmb/franz-go/pkg/kfake"
	_ "github.com/twmb/franz-go/pkg/kgo"
	_ "github.com/twmb/franz-go/pkg/sasl/oauth"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sync/errgroup"
	_ "modernc.org/sqlite"
	_ "pgregory.net/rapid"
)
