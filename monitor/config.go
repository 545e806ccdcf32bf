package monitor

import (
	"cmp"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// HealthConfig are the settings of a [Health]. The zero value is ready to use.
type HealthConfig struct {
	// Name names the store in answers; "" is "outbox". Do not put a URL here: every caller of
	// the probe reads it.
	Name string
	// MaxAge is how long a record may be due before Health warns; 0 is 5 minutes.
	MaxAge time.Duration
	// MaxNewDead is how many records may die within DeadWindow before Health warns; 0 warns of
	// the first one.
	MaxNewDead int
	// DeadWindow is the time after which Health counts new dead records from zero again; 0 is
	// 10 minutes.
	DeadWindow time.Duration
	// Forwarders are those of this process, by name: Health warns of a breaker that is open, of
	// topics that are held, and of one that has not claimed for MaxUnclaimed.
	Forwarders map[string]HealthForwarder
	// Subscribers are those of this process, by name: Health warns of one that has not claimed for
	// MaxUnclaimed, and, of a MeteredSubscriber, of messages that come again and again without an
	// attempt.
	Subscribers map[string]HealthSubscriber
	// Janitors are those that this process runs by themselves, by name. Health asks them, the forwarders,
	// the subscribers and the store for calls that fail: see FailingCaller.
	Janitors map[string]FailingCaller
	// FailingFor is how long a call may fail without a success; 0 is 1 minute.
	FailingFor time.Duration
	// MaxUnclaimed is how long a forwarder or subscriber may be without a claim that succeeds; 0 is
	// 5 minutes. A subscriber does not claim while all its handlers are busy, so give it more than
	// a handler takes.
	MaxUnclaimed time.Duration
	// Unseen is how long a group may be without a registration; 0 is 5 minutes. Workers register
	// about once a minute.
	Unseen time.Duration
	// Timeout ends a check of a store that does not answer; 0 is 3 seconds.
	Timeout time.Duration
	// CacheFor is how long the handler repeats an answer, so that many probes cost the
	// database one query; 0 is 5 seconds.
	CacheFor time.Duration
}

func (c HealthConfig) withDefaults() HealthConfig {
	c.Name = cmp.Or(c.Name, "outbox")
	c.MaxAge = cmp.Or(c.MaxAge, 5*time.Minute)
	c.DeadWindow = cmp.Or(c.DeadWindow, 10*time.Minute)
	c.MaxUnclaimed = cmp.Or(c.MaxUnclaimed, 5*time.Minute)
	c.Unseen = cmp.Or(c.Unseen, unseen)
	c.FailingFor = cmp.Or(c.FailingFor, storekit.FailingFor)
	c.Timeout = cmp.Or(c.Timeout, 3*time.Second)
	c.CacheFor = cmp.Or(c.CacheFor, 5*time.Second)
	return c
}

func (c HealthConfig) check() error {
	for name, d := range map[string]time.Duration{
		"MaxAge": c.MaxAge, "DeadWindow": c.DeadWindow, "Timeout": c.Timeout, "CacheFor": c.CacheFor,
		"MaxUnclaimed": c.MaxUnclaimed, "Unseen": c.Unseen, "FailingFor": c.FailingFor,
	} {
		if d < 0 {
			return storekit.InvalidConfig("HealthConfig.%s is %v: want 0 (the default) or more", name, d)
		}
	}
	for name, forwarder := range c.Forwarders {
		if outmill.IsNil(forwarder) {
			return storekit.InvalidConfig("HealthConfig.Forwarders has nil for %q: pass one of package forwarder", name)
		}
	}
	for name, subscriber := range c.Subscribers {
		if outmill.IsNil(subscriber) {
			return storekit.InvalidConfig("HealthConfig.Subscribers has nil for %q: pass one of package subscriber", name)
		}
	}
	for name, janitor := range c.Janitors {
		if outmill.IsNil(janitor) {
			return storekit.InvalidConfig("HealthConfig.Janitors has nil for %q: pass one of package janitor", name)
		}
	}
	if c.MaxNewDead < 0 {
		return storekit.InvalidConfig("HealthConfig.MaxNewDead is %d: want 0 or more", c.MaxNewDead)
	}
	return nil
}
