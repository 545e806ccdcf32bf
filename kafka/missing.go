package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// creationSetting is the brokers' setting that has them create a missing topic when a client asks for it.
const creationSetting = "auto.create.topics.enable"

// missingError is topicError for a topic that the brokers do not know, with the reason why they have not created it.
func (t *topics) missingError(ctx context.Context, broker int32, topic string, err error) error {
	if !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return topicError(topic, err)
	}
	return fmt.Errorf("%w; %s", topicError(topic, err), t.whyMissing(ctx, broker))
}

func (t *topics) whyMissing(ctx context.Context, broker int32) string {
	if !t.create {
		return "this publisher does not ask the brokers to create it (kafka.Config.NoTopicCreation)"
	}
	ctx, cancel := context.WithTimeout(ctx, min(diagnoseWithin, t.timeout))
	defer cancel()
	switch value := t.brokerSetting(ctx, broker, creationSetting); value {
	case "true":
		return fmt.Sprintf("the brokers create missing topics (%s=true), but not this one within kafka.Config.TopicTimeout (%s)",
			creationSetting, t.patience)
	case "":
		return fmt.Sprintf("the brokers have not created it, so %s is probably false", creationSetting)
	default:
		return fmt.Sprintf("the brokers create no missing topics (%s=%s)", creationSetting, value)
	}
}

// brokerSetting returns a setting of a broker, or "" if it cannot be had, such as without the right to see it.
func (t *topics) brokerSetting(ctx context.Context, broker int32, name string) string {
	req := kmsg.NewPtrDescribeConfigsRequest()
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(broker))
	resource.ConfigNames = []string{name}
	req.Resources = append(req.Resources, resource)
	resp, err := req.RequestWith(ctx, t.client().Client)
	if err != nil {
		return ""
	}
	for _, resource := range resp.Resources {
		for _, config := range resource.Configs {
			if config.Name == name && config.Value != nil {
				return *config.Value
			}
		}
	}
	return ""
}
