package outmill_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	backoffv4 "github.com/cenkalti/backoff/v4"
	backoffv5 "github.com/cenkalti/backoff/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

var errHandler = errors.New("handler failed")

func TestRetry(t *testing.T) {
	t.Parallel()

	t.Run("the default waits are min 2 to the n and 60 seconds (OBX-062)", func(t *testing.T) {
		t.Parallel()
		var policy outmill.RetryPolicy
		require.NoError(t, policy.Validate())
		for i, want := range []time.Duration{2, 4, 8, 16, 32, 60, 60, 60, 60} {
			require.Equal(t, want*time.Second, policy.Delay(i+1), "after failure %d", i+1)
		}
		require.Equal(t, 60*time.Second, policy.Delay(1_000_000))
		require.Equal(t, 2*time.Second, policy.Delay(0), "below 1 is the first")
	})

	t.Run("waits follow the settings (OBX-061, OBX-063)", func(t *testing.T) {
		t.Parallel()
		policy := outmill.RetryPolicy{InitialInterval: 100 * time.Millisecond, MaxInterval: time.Second, Multiplier: 3}
		for i, want := range []int{100, 300, 900, 1000, 1000} {
			require.Equal(t, time.Duration(want)*time.Millisecond, policy.Delay(i+1))
		}
		steady := outmill.RetryPolicy{InitialInterval: time.Second, Multiplier: 1}
		require.Equal(t, time.Second, steady.Delay(50))
		require.Equal(t, time.Second, outmill.RetryPolicy{MaxInterval: time.Second}.Delay(1), "the longest wait bounds the first one too")
	})

	t.Run("no wait exceeds the maximum and none shrinks", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			policy := outmill.RetryPolicy{
				InitialInterval: time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "initial")),
				MaxInterval:     time.Duration(rapid.Int64Range(1, int64(100*time.Hour)).Draw(t, "max")),
				Multiplier:      rapid.Float64Range(1, 100).Draw(t, "multiplier"),
			}
			require.NoError(t, policy.Validate())
			var last time.Duration
			for n := 1; n <= 70; n++ {
				delay := policy.Delay(n)
				require.LessOrEqual(t, delay, policy.MaxInterval)
				require.GreaterOrEqual(t, delay, last)
				last = delay
			}
		})
	})

	t.Run("full jitter draws from above zero to the wait", func(t *testing.T) {
		t.Parallel()
		policy := outmill.RetryPolicy{InitialInterval: 8, MaxInterval: 8, FullJitter: true}
		seen := map[time.Duration]bool{}
		for range 2000 {
			seen[policy.Delay(1)] = true
		}
		require.Len(t, seen, 8, "each of 1 to 8 ns, both ends included, and nothing else")
		for delay := range seen {
			require.True(t, 1 <= delay && delay <= 8, "%d", delay)
		}
		unit := outmill.RetryPolicy{InitialInterval: 1, MaxInterval: 1, FullJitter: true}
		require.Equal(t, time.Duration(1), unit.Delay(1))
	})

	t.Run("a custom sequence", func(t *testing.T) {
		t.Parallel()
		custom := func(b outmill.BackOff) outmill.RetryPolicy {
			return outmill.RetryPolicy{MaxAttempts: -1, BackOff: func() outmill.BackOff { return b }}
		}
		t.Run("replaces the intervals", func(t *testing.T) {
			t.Parallel()
			policy := custom(backoffv4.NewConstantBackOff(7 * time.Second))
			policy.InitialInterval = time.Hour
			require.Equal(t, 7*time.Second, policy.Delay(3))
		})
		t.Run("may be of backoff v5", func(t *testing.T) {
			t.Parallel()
			require.Equal(t, 7*time.Second, custom(backoffv5.NewConstantBackOff(7*time.Second)).Delay(3))
			require.Equal(t, storekit.Verdict{Dead: true}, storekit.Decide(custom(&backoffv5.StopBackOff{}), 0, errHandler))
		})
		t.Run("makes the record dead when it says stop", func(t *testing.T) {
			t.Parallel()
			require.Equal(t, storekit.Verdict{Dead: true}, storekit.Decide(custom(&backoffv4.StopBackOff{}), 0, errHandler))
		})
		t.Run("makes it dead after as many retries as it allows", func(t *testing.T) {
			t.Parallel()
			policy := outmill.RetryPolicy{MaxAttempts: -1, BackOff: func() outmill.BackOff {
				return backoffv4.WithMaxRetries(backoffv4.NewConstantBackOff(time.Second), 80)
			}}
			require.Equal(t, storekit.Verdict{Delay: time.Second}, storekit.Decide(policy, 79, errHandler))
			require.Equal(t, storekit.Verdict{Dead: true}, storekit.Decide(policy, 80, errHandler))
			require.Equal(t, storekit.Verdict{Dead: true}, storekit.Decide(policy, 80, errHandler), "the answer is the same when asked again")
		})
		t.Run("does not lift the limit of attempts", func(t *testing.T) {
			t.Parallel()
			policy := custom(&backoffv4.ZeroBackOff{})
			policy.MaxAttempts = 2
			require.Equal(t, storekit.Verdict{}, storekit.Decide(policy, 0, errHandler))
			require.True(t, storekit.Decide(policy, 1, errHandler).Dead)
		})
		t.Run("a negative wait other than stop is no wait", func(t *testing.T) {
			t.Parallel()
			require.Equal(t, storekit.Verdict{}, storekit.Decide(custom(backoffv4.NewConstantBackOff(-5)), 0, errHandler))
		})
		t.Run("a nil one is the default one, not a panic", func(t *testing.T) {
			t.Parallel()
			require.Equal(t, 2*time.Second, custom(nil).Delay(1))
			require.Equal(t, 2*time.Second, custom((*backoffv4.ConstantBackOff)(nil)).Delay(1))
		})
		t.Run("can be jittered", func(t *testing.T) {
			t.Parallel()
			policy := custom(backoffv4.NewConstantBackOff(4))
			policy.FullJitter = true
			for range 100 {
				require.True(t, policy.Delay(1) >= 1 && policy.Delay(1) <= 4)
			}
		})
	})

	t.Run("the last attempt (OBX-064, OBX-065)", func(t *testing.T) {
		t.Parallel()
		for _, tc := range []struct {
			name             string
			maxAttempts      int
			retried, endedBy int // attempts before the handling that is judged
		}{
			{"is the 10th by default", 0, 8, 9},
			{"is the 1st with a limit of 1", 1, -1, 0},
			{"is the 3rd with a limit of 3", 3, 1, 2},
			{"stays the last when the limit was lowered since", 3, 1, 7},
		} {
			t.Run(tc.name, func(t *testing.T) {
				t.Parallel()
				policy := outmill.RetryPolicy{MaxAttempts: tc.maxAttempts}
				if tc.retried >= 0 {
					require.False(t, storekit.Decide(policy, tc.retried, errHandler).Dead)
				}
				require.Equal(t, storekit.Verdict{Dead: true}, storekit.Decide(policy, tc.endedBy, errHandler))
			})
		}
		t.Run("never comes with a negative limit", func(t *testing.T) {
			t.Parallel()
			policy := outmill.RetryPolicy{MaxAttempts: -1}
			require.Equal(t, storekit.Verdict{Delay: time.Minute}, storekit.Decide(policy, math.MaxInt-1, errHandler))
			require.False(t, policy.Exhausted(math.MaxInt))
		})
	})

	t.Run("the verdict on a handler's error", func(t *testing.T) {
		t.Parallel()
		for _, tc := range []struct {
			name string
			err  error
			want storekit.Verdict
		}{
			{"any error waits as the policy says", errHandler, storekit.Verdict{Delay: 2 * time.Second}},
			{"Permanent is dead at once", outmill.Permanent(errHandler), storekit.Verdict{Dead: true}},
			{"backoff v4's Permanent is too", backoffv4.Permanent(errHandler), storekit.Verdict{Dead: true}},
			{"backoff v5's Permanent is too", backoffv5.Permanent(errHandler), storekit.Verdict{Dead: true}},
			{"RetryAfter waits as it says", outmill.RetryAfter(errHandler, time.Hour), storekit.Verdict{Delay: time.Hour}},
			{"RetryAfter of a time that has passed is at once", outmill.RetryAfter(errHandler, -time.Hour), storekit.Verdict{}},
			{"Snooze counts nothing", outmill.Snooze(time.Hour), storekit.Verdict{Snooze: true, Delay: time.Hour}},
			{"Snooze of a time that has passed is at once", outmill.Snooze(-time.Hour), storekit.Verdict{Snooze: true}},
			{"Snooze wins over Permanent", errors.Join(outmill.Permanent(errHandler), outmill.Snooze(1)), storekit.Verdict{Snooze: true, Delay: 1}},
			{"RetryAfter wins over Permanent", errors.Join(outmill.Permanent(errHandler), outmill.RetryAfter(errHandler, 1)),
				storekit.Verdict{Delay: 1}},
		} {
			for how, wrap := range wrappings {
				t.Run(tc.name+", "+how, func(t *testing.T) {
					t.Parallel()
					require.Equal(t, tc.want, storekit.Decide(outmill.RetryPolicy{}, 0, wrap(tc.err)))
				})
			}
		}
	})

	t.Run("the markers stop backoffs own Retry in both versions", func(t *testing.T) {
		t.Parallel()
		for name, marker := range map[string]error{
			"Permanent": outmill.Permanent(errHandler), "RetryAfter": outmill.RetryAfter(errHandler, 1), "Snooze": outmill.Snooze(1),
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				want := storekit.Decide(outmill.RetryPolicy{}, 0, marker)
				calls := 0
				fail := func() error { calls++; return marker }
				require.Equal(t, want, storekit.Decide(outmill.RetryPolicy{}, 0,
					backoffv4.Retry(fail, backoffv4.WithMaxRetries(&backoffv4.ZeroBackOff{}, 3))))
				_, err := backoffv5.Retry(t.Context(), func() (int, error) {
					return 0, fail()
				}, backoffv5.WithBackOff(&backoffv5.ZeroBackOff{}), backoffv5.WithMaxTries(3))
				require.Equal(t, want, storekit.Decide(outmill.RetryPolicy{}, 0, err))
				require.Equal(t, 2, calls, "once each")
			})
		}
	})

	t.Run("after the last attempt", func(t *testing.T) {
		t.Parallel()
		policy := outmill.RetryPolicy{MaxAttempts: 1}
		require.True(t, storekit.Decide(policy, 0, outmill.RetryAfter(errHandler, time.Hour)).Dead, "RetryAfter is counted, so it ends too")
		require.Equal(t, storekit.Verdict{Snooze: true, Delay: 1}, storekit.Decide(policy, 99, outmill.Snooze(1)), "Snooze never ends")
	})

	t.Run("the markers keep the handler's error", func(t *testing.T) {
		t.Parallel()
		for name, err := range map[string]error{
			"Permanent":  outmill.Permanent(errHandler),
			"RetryAfter": outmill.RetryAfter(errHandler, time.Second),
		} {
			require.ErrorIs(t, err, errHandler, name)
			require.EqualError(t, err, errHandler.Error(), name)
		}
		require.False(t, outmill.IsPermanent(outmill.RetryAfter(errHandler, 1)), "it stops Watermill's Retry, yet asks for another attempt")
		require.False(t, outmill.IsPermanent(outmill.Snooze(1)), "so does Snooze")
		require.NoError(t, outmill.Permanent(nil))
		require.NoError(t, outmill.RetryAfter(nil, time.Second))
		require.EqualError(t, outmill.Snooze(time.Second), "outmill: snoozed for 1s")
		for _, err := range []error{nil, errHandler} {
			require.False(t, outmill.IsPermanent(err))
			_, snoozed := outmill.SnoozeDelay(err)
			require.False(t, snoozed)
			_, later := outmill.RetryAfterDelay(err)
			require.False(t, later)
		}
	})

	t.Run("the markers stop Watermills Retry and survive it", func(t *testing.T) {
		t.Parallel()
		for name, tc := range map[string]struct {
			err  error
			want storekit.Verdict
		}{
			"Permanent":  {outmill.Permanent(errHandler), storekit.Verdict{Dead: true}},
			"RetryAfter": {outmill.RetryAfter(errHandler, time.Hour), storekit.Verdict{Delay: time.Hour}},
			"Snooze":     {outmill.Snooze(time.Hour), storekit.Verdict{Snooze: true, Delay: time.Hour}},
		} {
			for how, wrap := range wrappings {
				t.Run(name+", "+how, func(t *testing.T) {
					t.Parallel()
					calls, err := throughRetry(wrap(tc.err), 1)
					require.Equal(t, 1, calls, "Retry must not call the handler again")
					require.Equal(t, tc.want, storekit.Decide(outmill.RetryPolicy{}, 0, err))
				})
			}
			t.Run(name+", through two of them", func(t *testing.T) {
				t.Parallel()
				calls, err := throughRetry(tc.err, 2)
				require.Equal(t, 1, calls)
				require.Equal(t, tc.want, storekit.Decide(outmill.RetryPolicy{}, 0, err))
			})
		}
		t.Run("any other error is retried, so the test above can fail", func(t *testing.T) {
			t.Parallel()
			calls, err := throughRetry(errHandler, 1)
			require.Equal(t, 4, calls)
			require.ErrorIs(t, err, errHandler)
		})
	})

	t.Run("a policy that makes no sense is refused setting by setting", func(t *testing.T) {
		t.Parallel()
		err := outmill.RetryPolicy{InitialInterval: -1, MaxInterval: -1, Multiplier: 0.5}.Validate()
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.Len(t, joined(err), 3)
		for _, name := range []string{"RetryPolicy.InitialInterval", "RetryPolicy.MaxInterval", "RetryPolicy.Multiplier"} {
			require.ErrorContains(t, err, name)
		}
		for _, multiplier := range []float64{-1, 0.99, math.NaN(), math.Inf(1), math.Inf(-1)} {
			require.ErrorIs(t, outmill.RetryPolicy{Multiplier: multiplier}.Validate(), outmill.ErrInvalidConfig, "%v", multiplier)
		}
	})
}

// wrappings are the ways in which code may wrap a handler's error before the worker judges
// it.
var wrappings = map[string]func(error) error{
	"as it is":            func(err error) error { return err },
	"wrapped by fmt":      func(err error) error { return fmt.Errorf("handle order: %w", err) },
	"joined":              func(err error) error { return errors.Join(errors.New("another"), err) },
	"wrapped and joined":  func(err error) error { return errors.Join(fmt.Errorf("a: %w", fmt.Errorf("b: %w", err))) },
	"in a PublishError":   func(err error) error { return &storekit.PublishError{Failed: []storekit.FailedMessage{{Err: err}}} },
	"behind two wrappers": func(err error) error { return fmt.Errorf("%w and %w", errors.New("x"), err) },
}

// throughRetry runs a handler that fails with err below one or two of
// Watermill's Retry middlewares, outermost first.
func throughRetry(err error, layers int) (calls int, result error) {
	handler := func(*message.Message) ([]*message.Message, error) {
		calls++
		return nil, err
	}
	retry := middleware.Retry{MaxRetries: 3, InitialInterval: time.Microsecond, MaxInterval: time.Microsecond, Multiplier: 1}
	for range layers {
		handler = retry.Middleware(handler)
	}
	_, result = handler(message.NewMessage("m-1", nil))
	return calls, result
}
