package mongo

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

const (
	// statsAtOnce bounds the stages of one aggregation, because MongoDB's limit is 1,000.
	statsAtOnce = 800
	// oldestOf is how many of the first ready records are read to find the one that became due
	// first. Records that were given back may have become due later than records behind them.
	oldestOf = 100
)

// statsRow is the server's answer about a topic of a group in one stage.
type statsRow struct {
	Group   reader    `bson:"grp"`
	Topic   string    `bson:"topic"`
	Stage   int       `bson:"stage"`
	N       int       `bson:"n"`
	Delayed int       `bson:"delayed"`
	Oldest  time.Time `bson:"oldest"`
	// Pauses is the generation of the pauses, in a row without a topic.
	Pauses int64 `bson:"pauses"`
}

// Stats counts the records of each group and topic. It makes one round trip for each hundred
// groups, for any number of topics. See outmill.Inspector.
func (s *Store) Stats(ctx context.Context, limit int) ([]outmill.TopicStats, error) {
	const operation = "stats"
	limit, err := storekit.CheckStats(limit)
	if err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	var all []outmill.TopicStats
	err = s.do(ctx, operation, func(ctx context.Context) error {
		all = nil
		readers, err := s.readersOf(ctx)
		if err != nil {
			return err
		}
		slices.Sort(readers)
		now, err := s.now(ctx)
		if err != nil {
			return err
		}
		for some := range slices.Chunk(readers, statsAtOnce/len(allStages)) {
			found, err := s.statsOf(ctx, some, limit, now)
			if err != nil {
				return err
			}
			all = append(all, found...)
		}
		return nil
	})
	return all, err
}

func (s *Store) statsOf(ctx context.Context, readers []reader, limit int, now time.Time) ([]outmill.TopicStats, error) {
	var each []driver.Pipeline
	at := map[reader]int{}
	for i, r := range readers {
		at[r] = i
		for _, stage := range allStages {
			each = append(each, s.statsIn(r, stage, limit, now))
		}
	}
	rows, err := aggregateAll[statsRow](ctx, s.records, append(union(s.records, each...), unionWith(s.lastChange())))
	if err != nil {
		return nil, err
	}
	var generation int64
	aside := map[line]bool{}
	rows = slices.DeleteFunc(rows, func(r statsRow) bool {
		generation = max(generation, r.Pauses)
		if r.Stage == storekit.StageAside {
			aside[line{r.Group, r.Topic}] = true
		}
		return r.Topic == ""
	})
	pauses, err := s.pausesOf(ctx, generation)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b statsRow) int {
		return cmp.Or(cmp.Compare(at[a.Group], at[b.Group]), strings.Compare(a.Topic, b.Topic))
	})
	var all []outmill.TopicStats
	for _, row := range rows {
		if n := len(all); n == 0 || all[n-1].Topic != row.Topic || all[n-1].Group != string(row.Group) {
			all = append(all, outmill.TopicStats{Group: string(row.Group), Topic: row.Topic})
		}
		row.addTo(&all[len(all)-1], limit)
	}
	return all, s.leaveOutPaused(ctx, all, pauses, aside, now)
}

const (
	// comparedWithPauses is how many records of each stage are compared with the pauses, to find
	// the one that has been due longest and is not paused.
	comparedWithPauses = 1000
	// linesAtOnce is how many topics of groups one aggregation compares.
	linesAtOnce = 20
)

// leaveOutPaused corrects OldestDue where something is paused. aside are the topics of groups with
// records that are aside.
func (s *Store) leaveOutPaused(
	ctx context.Context, all []outmill.TopicStats, pauses *roles.PauseList, aside map[line]bool, now time.Time,
) error {
	mixed := map[line]*outmill.TopicStats{}
	var lines []line
	for i := range all {
		of := line{reader(all[i].Group), all[i].Topic}
		if pauses.Topic(all[i].Group, all[i].Topic) {
			all[i].OldestDue = time.Time{}
		} else if aside[of] || pauses.HasParts() && !all[i].OldestDue.IsZero() {
			mixed[of] = &all[i]
			lines = append(lines, of)
		}
	}
	for some := range slices.Chunk(lines, linesAtOnce) {
		found, err := s.firstWaiting(ctx, some, comparedWithPauses, now)
		if err != nil {
			return err
		}
		for of, waiting := range found {
			stats := mixed[of]
			stats.OldestDue = waiting.OldestUnpaused(func(r storekit.WaitingRecord) bool {
				return pauses.Of(stats.Group, stats.Topic, r.Key, r.TenantID) != 0
			})
		}
	}
	return nil
}

func (r statsRow) addTo(stats *outmill.TopicStats, limit int) {
	switch storekit.StatusOf(r.Stage) {
	case outmill.StatusLeased:
		// N are the leases that have ended, and Delayed the others.
		stats.Leased, stats.Pending = r.Delayed, min(stats.Pending+r.N, limit)
	case outmill.StatusProcessed:
		stats.Processed = r.N
	case outmill.StatusDead:
		stats.Dead = r.N
	case outmill.StatusPending:
		stats.Pending, stats.Delayed = min(stats.Pending+r.N, limit), min(stats.Delayed+r.Delayed, limit)
	}
	if !r.Oldest.IsZero() && (stats.OldestDue.IsZero() || r.Oldest.Before(stats.OldestDue)) {
		stats.OldestDue = r.Oldest.UTC()
	}
}

// statsIn skips to each topic that has records in the stage, and reads at most limit records of
// it.
func (s *Store) statsIn(of reader, stage, limit int, now time.Time) driver.Pipeline {
	ofTopic := func(as string, stages ...bson.D) bson.D {
		return bson.D{{Key: "$lookup", Value: bson.D{
			{Key: "from", Value: s.records.Name()}, {Key: "localField", Value: "_id"}, {Key: "foreignField", Value: "topic"},
			{Key: "pipeline", Value: driver.Pipeline(stages)}, {Key: "as", Value: as},
		}}}
	}
	counted := of.in(stage)
	if stage == storekit.StageLeased {
		// Those whose lease has ended; "later" has the others.
		counted = append(counted, until(now))
	}
	stages := driver.Pipeline{
		{{Key: "$match", Value: of.in(stage)}},
		{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$topic"}}}},
		ofTopic("counted", bson.D{{Key: "$match", Value: counted}}, bson.D{{Key: "$limit", Value: limit}},
			bson.D{{Key: "$count", Value: "n"}}),
	}
	if stage == storekit.StageWaiting || stage == storekit.StageDelayed || stage == storekit.StageLeased {
		later := bson.E{Key: "available_at", Value: bson.D{{Key: "$gt", Value: now}}}
		stages = append(stages, ofTopic("later", bson.D{{Key: "$match", Value: of.in(stage, later)}}, bson.D{{Key: "$limit", Value: limit}},
			bson.D{{Key: "$count", Value: "n"}}))
	}
	if slices.Contains(leapStages, stage) {
		stages = append(stages, ofTopic("due", oldestIn(of, stage, now)...))
	}
	return append(stages, bson.D{{Key: "$project", Value: bson.D{
		{Key: "_id", Value: 0}, {Key: "grp", Value: bson.D{{Key: "$literal", Value: of}}}, {Key: "topic", Value: "$_id"},
		{Key: "stage", Value: bson.D{{Key: "$literal", Value: stage}}},
		{Key: "n", Value: bson.D{{Key: "$first", Value: "$counted.n"}}}, {Key: "delayed", Value: bson.D{{Key: "$first", Value: "$later.n"}}},
		{Key: "oldest", Value: bson.D{{Key: "$first", Value: "$due.oldest"}}},
	}}})
}

// oldestIn finds the time from which the first record of the stage is due.
func oldestIn(of reader, stage int, now time.Time) []bson.D {
	filter, order, n, due := of.in(stage), ascending("seq"), oldestOf, any(bson.D{{Key: "$max", Value: bson.A{"$next_at", "$created_at"}}})
	if stage > storekit.StageHeld {
		filter, order, n, due = append(filter, until(now)), ascending("available_at"), 1, "$available_at"
	}
	if stage == storekit.StageLeased {
		filter = append(filter, unexpired(now))
	}
	return []bson.D{
		{{Key: "$match", Value: filter}}, {{Key: "$sort", Value: order}}, {{Key: "$limit", Value: n}},
		{{Key: "$group", Value: bson.D{{Key: "_id", Value: nil}, {Key: "oldest", Value: bson.D{{Key: "$min", Value: due}}}}}},
	}
}
