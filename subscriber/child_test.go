package subscriber_test

const roleVariable = "OUTMILL_SUBSCRIBER_TEST_ROLE"

func play(role string) int { return 2 }
