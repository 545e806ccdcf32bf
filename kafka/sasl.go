package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/outmill/outmill"
)

// SASLMechanism names how a client proves who it is.
type SASLMechanism string

// The mechanisms, by the names that brokers list in sasl.enabled.mechanisms.
const (
	SASLPlain       SASLMechanism = "PLAIN"
	SASLScramSHA256 SASLMechanism = "SCRAM-SHA-256"
	SASLScramSHA512 SASLMechanism = "SCRAM-SHA-512"
	SASLOAuthBearer SASLMechanism = "OAUTHBEARER"
)

// SASL says how connections are authenticated.
type SASL struct {
	// Mechanism; "" is no authentication.
	Mechanism SASLMechanism
	// Username and Password are for PLAIN and SCRAM. Use PLAIN only over TLS, because it sends
	// them in clear text.
	Username, Password string
	// Token returns a token for OAUTHBEARER. It is called for each new connection and when a
	// token expires, possibly by several goroutines at a time.
	Token func(ctx context.Context) (string, error)
}

func (s SASL) validate() error {
	var errs []error
	refuse := func(field, reason string) {
		errs = append(errs, fmt.Errorf("%w: kafka.Config.SASL.%s %s", outmill.ErrInvalidConfig, field, reason))
	}
	switch s.Mechanism {
	case "":
		if s.Username != "" || s.Password != "" || s.Token != nil {
			refuse("Mechanism", "is empty while credentials are set: want PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER")
		}
	case SASLPlain, SASLScramSHA256, SASLScramSHA512:
		if s.Username == "" || s.Password == "" {
			refuse("Username", fmt.Sprintf("or Password is empty: %s requires both", s.Mechanism))
		}
		if s.Token != nil {
			refuse("Token", fmt.Sprintf("is set: %s does not use it", s.Mechanism))
		}
	case SASLOAuthBearer:
		if s.Token == nil {
			refuse("Token", "is nil: OAUTHBEARER requires a function that returns one")
		}
		if s.Username != "" || s.Password != "" {
			refuse("Username", "or Password is set: OAUTHBEARER does not use them")
		}
	default:
		refuse("Mechanism", fmt.Sprintf("is %q: want PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER", s.Mechanism))
	}
	return errors.Join(errs...)
}

// mechanism returns nil for no authentication.
func (s SASL) mechanism() sasl.Mechanism {
	switch s.Mechanism {
	case SASLPlain:
		return plain.Auth{User: s.Username, Pass: s.Password}.AsMechanism()
	case SASLScramSHA256:
		return scram.Auth{User: s.Username, Pass: s.Password}.AsSha256Mechanism()
	case SASLScramSHA512:
		return scram.Auth{User: s.Username, Pass: s.Password}.AsSha512Mechanism()
	case SASLOAuthBearer:
		return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			token, err := s.Token(ctx)
			return oauth.Auth{Token: token}, err
		})
	}
	return nil
}
