package mongo

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Tenants take turns in the topics of Config.FairTopics. A record of such a topic has a turn, a
// number that stands for its tenant, and is in a stage of its own while it is ready. So two small
// indexes have just these records, by turn (turns) and by key (turn_key), and the records of other
// topics are in neither.
//
//	appended by a store with the setting ──────────────────────────────► in turn
//	appended by it without a group, or by a store without the setting ──► ready
//	ready ──claim by a store with the setting, in steps─────────────────► in turn
//	waiting, delayed, ended lease ──it is due, and a claim admits it────► in turn if it has a turn, else ready
//	held ──claim without an order by a store with the setting───────────► in turn
//	in turn ──claim─────────────────────────────────────────────────────► leased, held, aside or expired, as from ready
//
// A claim finds the tenants by one index entry each, beginning with the one whose turn it is. Where
// the claim wants more than one record of each, it reads the rest of a share by one more search for
// each tenant. So it costs as much with a million records of one tenant as with ten.
//
// The turns are hashes, so the tenants are spread evenly over their range. A claim reads as much of
// the range as should have the tenants that it wants, by the number that the last claim saw, and
// goes on where it found fewer. So its cost does not grow with the number of tenants either.
//
// Records of one key may belong to several tenants, so a claim in the order of the keys meets them
// out of order. It holds a record if a ready one is before it in its key and is not on the page. It
// passes over a record with a key that is behind one without a turn. It reads both after the page
// and before the leases, so the argument about the order of the reads of a claim in order holds:
// only the claim that has the turn at the line gives turns to records, in a transaction that
// conflicts with the next one, unless claims without an order are made, too.
//
// A store without the setting reads the records in turn and those that are ready in the order of
// the appends.

// stageInTurn is the stage of a ready record of a fair topic. See storekit.StageReady.
const stageInTurn = -2

var (
	// readyStages selects both in their order: the server merges two parts of an index.
	readyStages = bson.D{{Key: "$in", Value: bson.A{stageInTurn, storekit.StageReady}}}

	// readyAgain is the stage of a record that becomes ready.
	readyAgain = given(bson.D{{Key: "$eq", Value: bson.A{bson.D{{Key: "$type", Value: "$turn"}}, "missing"}}},
		storekit.StageReady, stageInTurn)
)

func isReady(stage int) bool { return stage == storekit.StageReady || stage == stageInTurn }

// ServesTurns reports whether Config.FairTopics names the topic. See storekit.TenantTurns.
func (s *Store) ServesTurns(topic string) bool { return s.fair.ServesTurns(topic) }

// turnOf returns the turn of a tenant, from 1 to turnSpace. Programs share the turns, so the hash
// must never change.
func turnOf(tenant string) int64 {
	sum := sha256.Sum256([]byte(tenant))
	return max(1, int64(binary.BigEndian.Uint64(sum[:])>>1))
}

// turnSpace is the number of turns, and the greatest one.
const turnSpace = math.MaxInt64

// beginTurns returns the turn at which a claim of the line begins.
func (s *Store) beginTurns(of line) int64 {
	place, err := strconv.ParseInt(s.tenants.Begin(string(of.Group), of.Topic), 10, 64)
	if err != nil || place < 1 {
		place = 1 + rand.Int64N(turnSpace)
	}
	return place
}

// endTurns notes where the next claim begins.
func (s *Store) endTurns(of line, place int64) {
	if place > 0 {
		s.tenants.End(string(of.Group), of.Topic, strconv.FormatInt(place, 10))
	}
}

func afterTurn(turn int64) int64 {
	if turn == turnSpace {
		return 1
	}
	return turn + 1
}

// fromPlace sorts turns, beginning with the first one that is not before the place.
func fromPlace(place int64, turns []int64) []int64 {
	slices.Sort(turns)
	at, _ := slices.BinarySearch(turns, place)
	return slices.Concat(turns[at:], turns[:at])
}

// turnPage has records of several tenants.
type turnPage struct {
	list []candidate
	// place is the turn with which the claim begins.
	place int64
	// goesOn means that there are more ready records than those.
	goesOn bool
}

// readInTurns reads about size records of the line, as many of each tenant, and none of a tenant
// without room. Of the others it reads no more than they have room for.
func (s *Store) readInTurns(ctx context.Context, of line, size int, rooms *storekit.TenantRooms) (*turnPage, error) {
	page := &turnPage{place: s.beginTurns(of)}
	firsts, goesOn, err := s.firstOfTurns(ctx, of, page.place, storekit.TurnsAtOnce(size), rooms)
	if err != nil {
		return nil, err
	}
	page.list = firsts
	room := map[int64]int{}
	var open []candidate
	// furtherOf notes that so many records of a tenant are on the page, after which it may have more.
	furtherOf := func(last candidate, n int) {
		if _, known := room[last.Turn]; !known {
			room[last.Turn] = rooms.Of(last.TenantID)
		}
		if room[last.Turn] -= n; room[last.Turn] > 0 {
			open = append(open, last)
		} else {
			// If the claim moves these records out of the way, it may take others of the tenant.
			goesOn = true
		}
	}
	for _, r := range firsts {
		furtherOf(r, 1)
	}
	for len(page.list) < size && len(open) > 0 {
		missing := size - len(page.list)
		share := storekit.ShareOf(missing, len(open))
		asked := open[:min(len(open), (missing+share-1)/share)]
		more, err := s.moreOfTurns(ctx, of, asked, share)
		if err != nil {
			return nil, err
		}
		open = slices.Clone(open[len(asked):])
		for turn, found := range more {
			found = found[:min(len(found), room[turn])]
			page.list = append(page.list, found...)
			if len(found) == share || len(found) == room[turn] {
				furtherOf(found[len(found)-1], len(found))
			}
		}
	}
	page.goesOn = goesOn || len(open) > 0
	return page, nil
}

const (
	// firstShare is the share of the range of turns that a claim reads if it knows nothing about the
	// number of tenants.
	firstShare = 1.0 / 1024
	// spare is how much more of the range a claim reads than should be enough.
	spare = 1.5
)

// firstOfTurns returns the first ready record of each of n tenants, in the order of their turns
// from the place on, and whether there are more tenants. It leaves out tenants without room.
func (s *Store) firstOfTurns(ctx context.Context, of line, place int64, n int, rooms *storekit.TenantRooms) (
	firsts []candidate, goesOn bool, err error,
) {
	trail := s.trails.of(of)
	estimate, met := trail.tenantsSeen(), 0
	for read := int64(0); read < turnSpace && len(firsts) <= n; {
		width := firstShare
		if estimate > 0 {
			width = min(1, spare*float64(n+1-len(firsts))/estimate)
		}
		end := int64(turnSpace)
		if width < 1 {
			end = read + min(turnSpace-read, max(1, int64(width*turnSpace)))
		}
		found, err := aggregateAll[candidate](ctx, s.records, union(s.records, s.leapTurns(of, place, read, end)...))
		if err != nil {
			trail.saw(0)
			return nil, false, err
		}
		slices.SortFunc(found, func(a, b candidate) int {
			// The turns before the place become the greatest ones.
			return cmp.Compare(uint64(a.Turn-place), uint64(b.Turn-place))
		})
		met += len(found)
		found = slices.DeleteFunc(found, func(r candidate) bool { return rooms.Of(r.TenantID) <= 0 })
		firsts, read = append(firsts, found...), end
		estimate = max(0.5, float64(met)) / (float64(read) / turnSpace)
	}
	trail.saw(estimate)
	return firsts[:min(n, len(firsts))], len(firsts) > n, nil
}

// leapTurns finds the first ready record of each turn in a part of the range, which begins at the
// place and goes on from 1: it leaves out the first turns (without), and ends with the turn upTo.
// The server skips from turn to turn.
func (s *Store) leapTurns(of line, place, without, upTo int64) []driver.Pipeline {
	var each []driver.Pipeline
	leap := func(from, to int64) {
		group := bson.D{{Key: "_id", Value: "$turn"}, {Key: "id", Value: bson.D{{Key: "$first", Value: "$_id"}}}}
		whole := bson.D{{Key: "_id", Value: "$id"}, {Key: "turn", Value: "$_id"}}
		for _, field := range candidateFields {
			group = append(group, bson.E{Key: field, Value: bson.D{{Key: "$first", Value: "$" + field}}})
			whole = append(whole, bson.E{Key: field, Value: 1})
		}
		each = append(each, driver.Pipeline{
			{{Key: "$match", Value: of.in(stageInTurn, bson.E{Key: "turn", Value: bson.D{{Key: "$gte", Value: from}, {Key: "$lte", Value: to}}})}},
			{{Key: "$sort", Value: ascending("turn", "seq")}}, {{Key: "$group", Value: group}}, {{Key: "$project", Value: whole}},
		})
	}
	// The turns from the place on are the first ones.
	before := turnSpace - place + 1
	if without < before {
		leap(place+without, place-1+min(upTo, before))
	}
	if upTo > before {
		leap(1+max(0, without-before), upTo-before)
	}
	return each
}

// searchesAtOnce bounds the parts of one aggregation. See statsAtOnce.
const searchesAtOnce = 400

// moreOfTurns reads up to share records of each tenant, behind the given ones.
func (s *Store) moreOfTurns(ctx context.Context, of line, behind []candidate, share int) (more map[int64][]candidate, err error) {
	more = map[int64][]candidate{}
	for some := range slices.Chunk(behind, searchesAtOnce) {
		each := make([]driver.Pipeline, len(some))
		for i, r := range some {
			each[i] = someBy(of.in(stageInTurn, bson.E{Key: "turn", Value: r.Turn}, after(r)), share, ascending("turn", "seq"))
		}
		found, err := aggregateAll[candidate](ctx, s.records, union(s.records, each...))
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			more[r.Turn] = append(more[r.Turn], r)
		}
	}
	return more, nil
}

// someBy is some with the fields of a candidate and its turn.
func someBy(filter bson.D, n int, order bson.D) driver.Pipeline {
	return some(filter, n, order, append([]string{"turn"}, candidateFields...)...)
}

func after(r candidate) bson.E {
	return bson.E{Key: "seq", Value: bson.D{{Key: "$gt", Value: r.Seq}}}
}

// verdict is what a claim that serves turns does with a record.
type verdict int

const (
	passed verdict = iota // the tenant's next record may come
	took
	full // the claim takes no more
)

// inTurns decides about one record of each tenant, then about a second one, and so on. queues are
// the records by turn, to which decide may add. It returns the place at which the next claim
// begins.
func inTurns(order []int64, queues map[int64][]candidate, decide func(candidate) verdict) (place int64) {
	if len(order) > 0 {
		place = afterTurn(order[len(order)-1])
	}
	for served := true; served; {
		served = false
		for _, turn := range order {
			for len(queues[turn]) > 0 {
				r := queues[turn][0]
				queues[turn] = queues[turn][1:]
				is := decide(r)
				if is == full {
					return turn
				}
				if is == took {
					served, place = true, afterTurn(turn)
					break
				}
			}
		}
	}
	return place
}

// enqueue adds a record to those of its tenant, in their order.
func enqueue(queues map[int64][]candidate, r candidate) {
	queue := queues[r.Turn]
	at, _ := slices.BinarySearchFunc(queue, r, func(a, b candidate) int { return cmp.Compare(place(a.Seq), place(b.Seq)) })
	queues[r.Turn] = slices.Insert(queue, at, r)
}

// giveTurns makes records in turn that are ready, and returns how many it moved.
func (s *Store) giveTurns(ctx context.Context, list []candidate) (int, error) {
	return s.moveToTurns(ctx, list, func(turn int64) any {
		return set(bson.D{{Key: "stage", Value: stageInTurn}, {Key: "turn", Value: turn}})
	}, bson.E{Key: "stage", Value: storekit.StageReady})
}

// lineUp makes records in turn that are held, or due in another stage. An ended lease counts as an
// expiry.
func (s *Store) lineUp(ctx context.Context, list []candidate) (int, error) {
	ended := bson.D{{Key: "$eq", Value: bson.A{"$stage", storekit.StageLeased}}}
	return s.moveToTurns(ctx, list, func(turn int64) any {
		return pipeline(append(countEnded(ended), bson.E{Key: "stage", Value: stageInTurn}, bson.E{Key: "turn", Value: turn},
			bson.E{Key: "status", Value: outmill.StatusPending}), "owner", "available_at")
	}, stillDue())
}

func (s *Store) moveToTurns(ctx context.Context, list []candidate, update func(turn int64) any, condition bson.E) (int, error) {
	if len(list) == 0 {
		return 0, nil
	}
	ids := map[int64]bson.A{}
	for _, r := range list {
		turn := turnOf(r.TenantID)
		ids[turn] = append(ids[turn], r.ID)
	}
	var models []driver.WriteModel
	for turn, ids := range ids {
		models = append(models, driver.NewUpdateManyModel().SetFilter(append(in("_id", ids), condition)).SetUpdate(update(turn)))
	}
	result, err := s.records.BulkWrite(ctx, models)
	if err != nil {
		return 0, err
	}
	return int(result.ModifiedCount), nil
}
