// Package watermillkafka makes the publisher of package kafka from the configuration of watermill-kafka, so that a program that has one
// changes one line:
//
//	-pub, err := kafka.NewPublisher(config, logger) // watermill-kafka
//	+pub, err := watermillkafka.NewPublisher(config, logger)
//
// It compiles watermill-kafka, and with it sarama and its dependencies, into the program. A program that has no configuration of
// watermill-kafka uses package kafka, which needs neither.
package watermillkafka
