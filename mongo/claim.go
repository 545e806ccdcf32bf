package mongo

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// maxClaim bounds the records of one claim, whatever its Limit.
const maxClaim = 10_000

// Claim leases up to req.Limit records, and never more than 10,000. See
// outmill.Queue.
func (s *Store) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	const operation = "claim"
	if err := storekit.CheckClaim(req); err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	req.Group = storekit.GroupOf(req.Group)
	if s.config.WithoutTransactions && req.Order != outmill.OrderNone {
		return nil, s.explain(ctx, operation,
			storekit.InvalidConfig("ClaimRequest.Order is %s: want OrderNone for a store made with WithoutTransactions", req.Order))
	}
	req.Limit = min(req.Limit, maxClaim)
	c := &claim{s: s, req: req}
	err := s.do(ctx, operation, c.run)
	if heard := s.changes.Load(); heard != nil {
		heard.claimed(s, req, len(c.records) == req.Limit || req.MaxBytes > 0 && c.bytes > req.MaxBytes/2)
	}
	if len(c.records) == 0 {
		return nil, err
	}
	// After an error, the claim still returns the records that it leased before.
	s.logger.Claimed(req, len(c.records))
	return c.records, err
}

// claim is one Claim. Each of its steps leases some records.
type claim struct {
	s       *Store
	req     outmill.ClaimRequest
	records []*outmill.Record
	bytes   int
	// over means that the claim takes no more records: it took a suspect, which must be alone, or
	// the next record exceeds MaxBytes.
	over bool
	// again means that the claim skipped so many records that there may be more to claim.
	again bool
	// ask is how many records a search reads, if that is more than the claim wants, because the
	// claim has met many paused ones, or, if it serves turns, many blocked ones.
	ask int
}

func (c *claim) run(ctx context.Context) error {
	busy := c.s.busy.Topics(c.req.Group, c.req.Topics)
	if names, plain := c.req.Topics.Names(); busy == nil && plain && len(names) == 1 &&
		c.s.trails.of(line{reader(c.req.Group), names[0]}).flows(time.Now(), c.req.Order) {
		busy = names
	}
	half := storekit.HalfTime(ctx)
	for {
		c.again = false
		topics, asked := busy, time.Now()
		if busy == nil {
			var err error
			if topics, err = c.dueTopics(ctx); err != nil || len(topics) == 0 {
				return err
			}
		}
		topics = c.s.turns.Order(c.req.Group, c.req.Topics, slices.Clone(topics))
		err := c.serveAll(ctx, topics)
		if len(c.records) > 0 && busy == nil {
			c.s.busy.Note(c.req.Group, c.req.Topics, topics)
			c.noteRouted(topics, asked)
		}
		if err != nil || len(c.records) > 0 || busy == nil && !c.again {
			return err
		}
		if !half.IsZero() && time.Now().After(half) {
			// What this claim has done stays done, and the next one continues.
			c.s.notifier.Notify()
			return nil
		}
		busy = nil
	}
}

// noteRouted remembers that, at that time, no record of the topics waited for a group.
func (c *claim) noteRouted(topics []string, at time.Time) {
	for _, topic := range topics {
		c.s.trails.of(line{reader(c.req.Group), topic}).routed(at)
	}
}

// room returns how many records the claim may still take.
func (c *claim) room() int {
	if c.over {
		return 0
	}
	return c.req.Limit - len(c.records)
}

func (c *claim) taken() int { return len(c.records) }

func (c *claim) serveAll(ctx context.Context, topics []string) error {
	return storekit.ServeTopics(topics, c.req.Limit, c.room, c.taken, func(topic string, want int) error {
		switch {
		case c.req.Order != outmill.OrderNone:
			return c.takeInOrder(ctx, topic, want)
		case c.s.ServesTurns(topic):
			return c.takeAnyInTurns(ctx, topic, want)
		default:
			return c.takeAny(ctx, topic, want)
		}
	})
}

// dueStages are the stages from which a claim without an order takes records. stageInTurn counts
// as StageReady.
var dueStages = []int{storekit.StageReady, storekit.StageHeld, storekit.StageWaiting, storekit.StageDelayed, storekit.StageLeased}

// leapStages are the same with stageInTurn: a leap reads one stage.
var leapStages = append([]int{stageInTurn}, dueStages...)

// dueTopics returns the selected topics that may have records to claim, and that are not paused.
// Before it returns, it gives records of these topics that wait for a group to one.
func (c *claim) dueTopics(ctx context.Context) ([]string, error) {
	due, unrouted, pauses, err := c.searchTopics(ctx)
	if err != nil {
		return nil, err
	}
	match := c.req.Topics.Matcher()
	if unrouted = slices.DeleteFunc(unrouted, func(topic string) bool { return !match(topic) }); len(unrouted) > 0 {
		slices.Sort(unrouted)
		unrouted = slices.Compact(unrouted)
		adopted, err := c.s.adoptAll(ctx, unrouted)
		if err != nil {
			return nil, err
		}
		if adopted > 0 {
			due = append(due, unrouted...)
		}
	}
	due = slices.DeleteFunc(due, func(topic string) bool { return !match(topic) || pauses.Topic(c.req.Group, topic) })
	slices.Sort(due)
	return slices.Compact(due), nil
}

// searchTries bounds how often a claim searches by pauses that change during the search. Its
// decisions need no second search, because they go by the pauses after the change. But a search by
// the pauses before it does not find what comes back.
const searchTries = 2

// searchTopics returns the topics that have records to claim or to bring back, the topics that
// have records without a group, and the pauses.
func (c *claim) searchTopics(ctx context.Context) (due, unrouted []string, pauses *roles.PauseList, err error) {
	for range searchTries {
		known := c.s.pauses.Load()
		if due, unrouted, pauses, err = c.searchTopicsBy(ctx, known); err != nil || pauses.Generation() == known.Generation() {
			break
		}
	}
	return due, unrouted, pauses, err
}

func (c *claim) searchTopicsBy(
	ctx context.Context, known *roles.PauseList,
) (due, unrouted []string, pauses *roles.PauseList, err error) {
	group := reader(c.req.Group)
	each := append(c.s.leaps(group, leapStages...), topicsWhere(group.in(storekit.StageAside, gone(known))))
	for _, leap := range c.s.leaps(reader(""), storekit.StageReady, storekit.StageDelayed) {
		each = append(each, append(leap, bson.D{{Key: "$set", Value: bson.D{{Key: "unrouted", Value: true}}}}))
	}
	found, err := aggregateAll[struct {
		Topic    string `bson:"_id"`
		Unrouted bool   `bson:"unrouted"`
		Pauses   int64  `bson:"pauses"`
	}](ctx, c.s.records, append(union(c.s.records, each...), unionWith(c.s.lastChange())))
	if err != nil {
		return nil, nil, nil, err
	}
	var generation int64
	for _, f := range found {
		switch generation = max(generation, f.Pauses); {
		case f.Pauses > 0:
		case f.Unrouted:
			unrouted = append(unrouted, f.Topic)
		default:
			due = append(due, f.Topic)
		}
	}
	pauses, err = c.s.pausesOf(ctx, generation)
	return due, unrouted, pauses, err
}

// topicsOf returns the topics of the group's records in these stages.
func (s *Store) topicsOf(ctx context.Context, of reader, stages ...int) ([]string, error) {
	found, err := aggregateAll[struct {
		Topic string `bson:"_id"`
	}](ctx, s.records, union(s.records, s.leaps(of, stages...)...))
	topics := make([]string, len(found))
	for i, f := range found {
		topics[i] = f.Topic
	}
	slices.Sort(topics)
	return slices.Compact(topics), err
}

// leaps finds the topics of the group's records in these stages. For each stage, the server skips
// from topic to topic through an index.
func (s *Store) leaps(of reader, stages ...int) []driver.Pipeline {
	each := make([]driver.Pipeline, len(stages))
	for i, stage := range stages {
		each[i] = topicsWhere(of.in(stage))
	}
	return each
}

func topicsWhere(filter bson.D) driver.Pipeline {
	return driver.Pipeline{{{Key: "$match", Value: filter}}, {{Key: "$group", Value: bson.D{{Key: "_id", Value: "$topic"}}}}}
}

// candidate has the fields of a record by which a claim decides.
type candidate struct {
	ID          uuid           `bson:"_id"`
	Seq         bson.Timestamp `bson:"seq"`
	Key         string         `bson:"key"`
	TenantID    string         `bson:"tenant_id"`
	Owner       uuid           `bson:"owner"`
	Stage       int            `bson:"stage"`
	AvailableAt time.Time      `bson:"available_at"`
	NextAt      time.Time      `bson:"next_at"`
	CreatedAt   time.Time      `bson:"created_at"`
	ExpiresAt   time.Time      `bson:"expires_at"`
	Attempts    int            `bson:"attempts"`
	Claims      int            `bson:"claims"`
	Expiries    int            `bson:"expiries"`
	Size        int            `bson:"size"`
	Turn        int64          `bson:"turn"`

	// whole is the document, if all of it was read.
	whole *document
}

func (d *document) candidate() candidate {
	return candidate{
		ID: d.ID, Seq: d.Seq, Key: d.Key, TenantID: d.TenantID, Owner: d.Owner, Stage: d.Stage, AvailableAt: d.AvailableAt,
		NextAt: d.NextAt, CreatedAt: d.CreatedAt, ExpiresAt: d.ExpiresAt, Attempts: d.Attempts, Claims: d.Claims, Expiries: d.Expiries,
		Size: d.Size, whole: d,
	}
}

var candidateFields = []string{"seq", "key", "tenant_id", "stage", "available_at", "next_at", "created_at", "expires_at", "attempts",
	"claims", "expiries", "size"}

func (r candidate) expired(now time.Time) bool {
	return !r.ExpiresAt.IsZero() && !r.ExpiresAt.After(now)
}

// due returns the time from which the record may be claimed.
func (r candidate) due() time.Time {
	if r.Stage >= storekit.StageWaiting {
		return r.AvailableAt
	}
	if r.NextAt.After(r.CreatedAt) {
		return r.NextAt
	}
	return r.CreatedAt
}

// suspect includes the expiry that the next claim will count.
func (r candidate) suspect() bool {
	if r.Stage == storekit.StageLeased {
		return r.Expiries+1 >= outmill.SuspectExpiries
	}
	return r.Expiries >= outmill.SuspectExpiries
}

// choice is the list of records that a claim chose from one topic, in order.
type choice struct {
	list  []candidate
	bytes int
	// full means that the claim takes no more of the topic.
	full bool
}

func (of choice) ids() bson.A { return recordIDs(of.list) }

func recordIDs(list []candidate) bson.A {
	ids := make(bson.A, len(list))
	for i, r := range list {
		ids[i] = r.ID
	}
	return ids
}

// choose adds the record to the choice if it fits. If it does not fit, no later record of the
// topic is chosen either.
func (c *claim) choose(into *choice, r candidate, want int) bool {
	alone := len(c.records)+len(into.list) == 0
	tooBig := c.req.MaxBytes > 0 && c.bytes+into.bytes+r.Size > c.req.MaxBytes
	if c.over || into.full || len(into.list) == want || tooBig && !alone {
		into.full = true
		return false
	}
	if r.suspect() {
		into.full = true
		c.over = true
		if !alone {
			return false
		}
	}
	into.list = append(into.list, r)
	into.bytes += r.Size
	return true
}

// stillDue is the condition, by the server's clock, under which a record may be leased.
func stillDue() bson.E {
	return expr(bson.D{{Key: "$and", Value: bson.A{
		bson.D{{Key: "$or", Value: bson.A{
			inStages(storekit.StageReady, storekit.StageHeld, stageInTurn),
			bson.D{{Key: "$and", Value: bson.A{
				inStages(storekit.StageWaiting, storekit.StageDelayed, storekit.StageLeased), hasPassed("available_at"),
			}}},
		}}},
		notExpired,
	}}})
}

// inStages names the stages, because a comparison would also match records that are aside.
func inStages(stages ...int) bson.D {
	return bson.D{{Key: "$in", Value: bson.A{"$stage", stages}}}
}

var notExpired = bson.D{{Key: "$or", Value: bson.A{
	bson.D{{Key: "$eq", Value: bson.A{bson.D{{Key: "$type", Value: "$expires_at"}}, "missing"}}},
	bson.D{{Key: "$gt", Value: bson.A{"$expires_at", "$$NOW"}}},
}}}

// leased is the update that leases a record. It counts the expiry of a lease that has ended.
func leased(owner outmill.OwnerToken, token uuid, lease time.Duration) driver.Pipeline {
	ended := bson.D{{Key: "$eq", Value: bson.A{"$stage", storekit.StageLeased}}}
	return pipeline(append(countEnded(ended),
		bson.E{Key: "stage", Value: storekit.StageLeased},
		bson.E{Key: "status", Value: outmill.StatusLeased},
		bson.E{Key: "owner", Value: uuid(owner)},
		bson.E{Key: "claim_token", Value: token},
		bson.E{Key: "claims", Value: plus("claims", 1)},
		bson.E{Key: "available_at", Value: inTime(lease)},
	))
}

// countEnded counts the expiry of a lease that has ended. If the record was a suspect before, it
// also counts an attempt.
func countEnded(ended any) bson.D {
	return bson.D{
		{Key: "attempts", Value: plus("attempts", given(bson.D{{Key: "$and", Value: bson.A{
			ended, bson.D{{Key: "$gte", Value: bson.A{"$expiries", outmill.SuspectExpiries}}},
		}}}, 1, 0))},
		{Key: "expiries", Value: plus("expiries", given(ended, 1, 0))},
	}
}

// add adds records to the result of the claim.
func (c *claim) add(records []*outmill.Record) {
	for _, r := range records {
		c.records = append(c.records, r)
		c.bytes += r.Size()
		c.over = c.over || r.Suspect()
	}
}

func (c *claim) ofClaim(ids bson.A, token uuid) bson.D {
	return append(in("_id", ids), bson.E{Key: "owner", Value: uuid(c.req.Owner)}, bson.E{Key: "claim_token", Value: token})
}

// giveBack releases records that the claim may have leased and cannot return, so that no expiry
// is counted. If the release does not succeed soon, it continues in the background for as long as
// the election of another primary may take.
func (c *claim) giveBack(ctx context.Context, ids bson.A, token uuid) error {
	if len(ids) == 0 {
		return nil
	}
	undo := func(ctx context.Context) error {
		_, err := c.s.records.UpdateMany(ctx, append(c.ofClaim(ids, token), bson.E{Key: "stage", Value: storekit.StageLeased}), released())
		return err
	}
	soon, cancel := context.WithTimeout(alone(context.WithoutCancel(ctx)), abortWithin)
	defer cancel()
	err := again(soon, func() error { return undo(soon) })
	c.s.trails.stir()
	if err != nil {
		c.s.undoing.start(undo, func(err error) {
			c.s.logger.Error("Records that a claim could not return were not released; they can be claimed when their lease has ended", err,
				watermill.LogFields{"count": len(ids)})
		})
	}
	return err
}

// withoutSuspects releases records that became suspects after they were chosen together with
// others.
func (c *claim) withoutSuspects(ctx context.Context, records []*outmill.Record) ([]*outmill.Record, error) {
	var suspects []outmill.Lease
	rest := slices.DeleteFunc(slices.Clone(records), func(r *outmill.Record) bool {
		if r.Suspect() {
			suspects = append(suspects, r.Lease())
		}
		return r.Suspect()
	})
	if len(suspects) == 0 {
		return records, nil
	}
	return rest, errors.Join(c.s.settleAll(ctx, suspects, func(leaseGroup) any { return released() }))
}

// passableStages are the stages of records that a claim may pass over when they have expired.
var passableStages = []int{storekit.StageReady, storekit.StageHeld, storekit.StageWaiting, storekit.StageDelayed, stageInTurn}

// passExpired moves expired records to a stage that later claims do not read, and returns how
// many it moved. They stay pending until the janitor makes them dead.
func (s *Store) passExpired(ctx context.Context, ids bson.A) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	result, err := s.records.UpdateMany(ctx,
		append(in("_id", ids), append(in("stage", passableStages), expr(hasPassed("expires_at")))...),
		bson.D{{Key: "$set", Value: bson.D{{Key: "stage", Value: storekit.StageExpired}}},
			{Key: "$unset", Value: bson.D{{Key: "available_at", Value: ""}}}})
	if err != nil {
		return 0, err
	}
	passed := int(result.ModifiedCount)
	if passed < len(ids) {
		// The server's clock differs from the estimate, or another process was faster.
		s.clock.doubt()
	}
	return passed, nil
}
