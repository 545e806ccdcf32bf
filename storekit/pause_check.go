package storekit

import (
	"errors"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

const maxReasonLength = 1000

// CheckPause returns an outmill.ErrInvalidConfig for every invalid argument of a Pause,
// joined. Stores call it before they write.
func CheckPause(scope roles.PauseScope, by, reason string) error {
	errs := []error{CheckPauseScope(scope)}
	if by == "" {
		errs = append(errs, InvalidConfig("Pause: by is empty: name the person or the program that pauses, because others see the pause"))
	} else if wrong := checkName(by); wrong != "" {
		errs = append(errs, InvalidConfig("Pause: by %s", wrong))
	}
	if wrong := checkText(reason, maxReasonLength); wrong != "" {
		errs = append(errs, InvalidConfig("Pause: reason %s", wrong))
	}
	return errors.Join(errs...)
}

// CheckPauseScope returns an outmill.ErrInvalidConfig for every invalid field of the scope,
// joined. Stores call it for Resume.
func CheckPauseScope(s roles.PauseScope) error {
	var errs []error
	refuse := func(bad bool, text string, args ...any) {
		if bad {
			errs = append(errs, InvalidConfig("PauseScope"+text, args...))
		}
	}
	refuse(s == roles.PauseScope{}, " is empty, and would stop every delivery: set Group, Topic or TenantID")
	refuse(s.Key != "" && s.Topic == "", ".Key is set without Topic: a key belongs to a topic, so set Topic too")
	refuse(s.Key != "" && s.TenantID != "", ".Key and PauseScope.TenantID are both set: pause the key or the tenant, or make two pauses")
	for _, field := range []struct{ name, wrong string }{
		{"Group", checkName(s.Group)}, {"Topic", topicOrNone(s.Topic)}, {"Key", checkName(s.Key)},
		{"TenantID", checkText(s.TenantID, outmill.MaxTextLength)},
	} {
		refuse(field.wrong != "", ".%s %s", field.name, field.wrong)
	}
	return errors.Join(errs...)
}

func topicOrNone(topic string) string {
	if topic == "" {
		return ""
	}
	return topicReason(topic)
}
