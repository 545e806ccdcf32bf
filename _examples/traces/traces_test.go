package main

import (
	"bytes"
	"regexp"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheTraceHasEachStepOfTheOrderAndReachesTheBroker(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^POST /orders \(internal\)
  publish orders \(producer\)
    claim orders \(client\)
    process orders \(consumer\)
      publish mails \(producer\)
        claim mails \(client\)
        forward mails \(client\)
the broker got the traceparent 00-[0-9a-f]{32}-[0-9a-f]{16}-01
$`)
	if !want.Match(out.Bytes()) {
		t.Fatalf("got:\n%s", &out)
	}
}
