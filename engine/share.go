package engine

// serveTopics claims up to limit records of the topics: first an equal share of each topic,
// and then, from topics with more records, the shares that the others left unused. room
// returns the number of records that still fit in the claim, taken the number that it has,
// and take claims up to want records of a topic.
func serveTopics[T any](topics []T, limit int, room, taken func() int, take func(topic T, want int) error) error {
	if len(topics) == 0 {
		return nil
	}
	share := (limit + len(topics) - 1) / len(topics)
	open, err := serveShares(topics, share, room, taken, take)
	if err == nil && len(open) > 0 && share < limit {
		_, err = serveShares(open, limit, room, taken, take)
	}
	return err
}

// serveShares returns the topics that may have more records.
func serveShares[T any](topics []T, share int, room, taken func() int, take func(topic T, want int) error) ([]T, error) {
	var open []T
	for _, topic := range topics {
		if room() <= 0 {
			break
		}
		before, want := taken(), min(share, room())
		if err := take(topic, want); err != nil {
			return nil, err
		}
		if taken()-before == want {
			open = append(open, topic)
		}
	}
	return open, nil
}

// shareOf returns the share of each of n tenants in want records, which is at least one record.
func shareOf(want, n int) int {
	if n <= 0 {
		return want
	}
	return max(1, (want+n-1)/n)
}
