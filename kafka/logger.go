package kafka

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/twmb/franz-go/pkg/kgo"
)

// clientLogger passes the client's log to Watermill's logger, each line one level lower:
// the publisher returns an error for every problem that the client cannot solve, so its log
// is only detail.
type clientLogger struct{ logger watermill.LoggerAdapter }

func (l clientLogger) Level() kgo.LogLevel {
	if _, nop := l.logger.(watermill.NopLogger); nop {
		return kgo.LogLevelNone
	}
	return kgo.LogLevelInfo
}

func (l clientLogger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	fields := make(watermill.LogFields, len(keyvals)/2)
	for i := 0; i+1 < len(keyvals); i += 2 {
		fields[fmt.Sprint(keyvals[i])] = keyvals[i+1]
	}
	msg = "kafka client: " + msg
	switch level {
	case kgo.LogLevelError:
		err, ok := fields["err"].(error)
		if !ok {
			err = errors.New(msg)
		}
		l.logger.Error(msg, err, fields)
	case kgo.LogLevelWarn:
		l.logger.Debug(msg, fields)
	default:
		l.logger.Trace(msg, fields)
	}
}
