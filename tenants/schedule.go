package tenants

import (
	"container/heap"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outmill/outmill"
)

// maxReaders bounds the schedules. A reader whose schedule was forgotten begins again with a look
// at every member.
const maxReaders = 64

// reader is what claims with one group and one selection of topics, and its schedule: which
// members to ask next.
//
// A member that may have something is in ready, by its pass, which grows with what the member
// gave, divided by its weight: so members get a share by their weights, and none starves
// (stride scheduling). One that had nothing is in idle until its time comes.
type reader struct {
	match func(topic string) bool
	used  int

	// turn serialises the choices of a Strategy.
	turn sync.Mutex

	// stirred has a signal when a member may have something since the last wave of a claim.
	stirred chan struct{}

	mu      sync.Mutex
	version int
	looks   map[string]*look
	// late are the questions that no claim waits for.
	late  map[*look]*question
	ready byPass
	idle  byTime
	// clock is the pass of the member that was served last.
	clock float64
	// full are the members in which the last claim had no room for these tenants.
	full map[*look]map[topicPart]struct{}
	// alone are members to be asked alone, because they have a suspect or a large record.
	alone []string
	// last and found are of the last member that a Strategy chose.
	last  string
	found int
}

// look is what a reader knows of one member.
type look struct {
	member *member
	pass   float64
	weight float64
	// asking counts the claims under way.
	asking int
	// woken: something was appended while it was asked.
	woken bool
	pause time.Duration
	at    time.Time
	// index is the place in ready or idle, which of them inIdle says; -1 is in none.
	index  int
	inIdle bool
}

// readerOf returns the schedule of the request's reader.
func (s *Set) readerOf(req outmill.ClaimRequest) *reader {
	s.served.Store(true)
	key := selectionKey(req.Group, req.Topics)
	s.readersMu.Lock()
	r := s.readers[key]
	if r == nil {
		s.forgetReader()
		r = &reader{
			match: req.Topics.Matcher(), version: -1, looks: map[string]*look{},
			late: map[*look]*question{}, full: map[*look]map[topicPart]struct{}{}, stirred: make(chan struct{}, 1),
		}
		s.readers[key] = r
	}
	s.uses++
	r.used = s.uses
	s.readersMu.Unlock()
	r.sync(s.current())
	return r
}

// forgetReader makes room for one.
func (s *Set) forgetReader() {
	if len(s.readers) < maxReaders {
		return
	}
	oldest := ""
	for key, r := range s.readers {
		if oldest == "" || r.used < s.readers[oldest].used {
			oldest = key
		}
	}
	delete(s.readers, oldest)
}

func (s *Set) everyReader() []*reader {
	s.readersMu.Lock()
	defer s.readersMu.Unlock()
	list := make([]*reader, 0, len(s.readers))
	for _, r := range s.readers {
		list = append(list, r)
	}
	return list
}

// sync takes note of members that have come and gone.
func (r *reader) sync(members []*member, version int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if version <= r.version {
		return
	}
	r.version = version
	there := make(map[string]bool, len(members))
	for _, m := range members {
		there[m.name()] = true
		l := r.looks[m.name()]
		if l != nil && l.member == m {
			continue
		}
		if l != nil {
			r.remove(l)
			delete(r.full, l)
		}
		l = &look{member: m, weight: 1, pass: r.clock, index: -1}
		r.looks[m.name()] = l
		r.place(l, false)
	}
	for name, l := range r.looks {
		if !there[name] {
			r.remove(l)
			delete(r.full, l)
			delete(r.looks, name)
		}
	}
}

// place puts the look where it belongs.
func (r *reader) place(l *look, idle bool) {
	r.remove(l)
	if idle {
		l.inIdle = true
		heap.Push(&r.idle, l)
		return
	}
	l.pause = 0
	l.inIdle = false
	l.pass = max(l.pass, r.clock)
	heap.Push(&r.ready, l)
}

// leaveOut puts the look of a member that fails behind those that are idle.
func (r *reader) leaveOut(l *look, now time.Time) {
	l.at = now.Add(firstIdle)
	if until := l.member.leftOutUntil(); until.After(l.at) {
		l.at = until
	}
	r.place(l, true)
}

func (r *reader) remove(l *look) {
	switch {
	case l.index < 0:
	case l.inIdle:
		heap.Remove(&r.idle, l.index)
	default:
		heap.Remove(&r.ready, l.index)
	}
}

// wake has the next claim look at the member, where it may have records of the topic.
func (r *reader) wake(member, topic string) {
	if topic != "" && !r.match(topic) {
		return
	}
	select {
	case r.stirred <- struct{}{}:
	default:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.looks[member]
	switch {
	case l == nil:
	case l.asking > 0:
		l.woken = true
	case l.inIdle:
		r.place(l, false)
	}
}

// hearAgain forgets what has stirred so far: the next wave asks for that.
func (r *reader) hearAgain() {
	select {
	case <-r.stirred:
	default:
	}
}

// dueBy has the reader look at the member at that time at the latest.
func (r *reader) dueBy(member string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.looks[member]
	if l != nil && l.index >= 0 && l.inIdle && at.Before(l.at) {
		l.at = at
		heap.Fix(&r.idle, l.index)
	}
}

// nextAlone takes the next member that is to be asked alone; nil where there is none.
func (r *reader) nextAlone() *look {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.alone) > 0 {
		name := r.alone[0]
		r.alone = r.alone[1:]
		if l := r.looks[name]; l != nil && r.late[l] == nil && l.member.trouble(time.Now()) == nil {
			l.asking++
			return l
		}
	}
	return nil
}

// askAlone has a later claim ask the member alone.
func (r *reader) askAlone(member string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.alone, member) {
		r.alone = append(r.alone, member)
	}
}

// next takes up to most members to ask now: in a small set each, and in a larger one those that
// may have something, and then, unless only those are wanted, those that are idle whose time has
// come and that are not at rest. asked are those that this claim has asked already.
func (r *reader) next(now time.Time, most int, small, onlyReady bool, asked map[*look]bool, longest time.Duration) []*look {
	r.mu.Lock()
	defer r.mu.Unlock()
	if small {
		return r.nextOfAll(now, most, asked)
	}
	var wave, put []*look
	for len(wave) < most && len(r.ready) > 0 {
		l := heap.Pop(&r.ready).(*look)
		if asked[l] || r.late[l] != nil || l.member.trouble(now) != nil {
			put = append(put, l)
			continue
		}
		wave = append(wave, l)
	}
	for _, l := range put {
		if asked[l] || r.late[l] != nil {
			heap.Push(&r.ready, l)
			continue
		}
		r.leaveOut(l, now)
	}
	put = put[:0]
	for !onlyReady && len(wave) < most && len(r.idle) > 0 && !r.idle[0].at.After(now) {
		l := heap.Pop(&r.idle).(*look)
		switch {
		case asked[l], r.late[l] != nil:
			put = append(put, l)
		case l.member.trouble(now) != nil:
			r.leaveOut(l, now)
		case l.member.atRest():
			l.at = now.Add(longest)
			r.place(l, true)
		default:
			wave = append(wave, l)
		}
	}
	for _, l := range put {
		heap.Push(&r.idle, l)
	}
	for _, l := range wave {
		l.asking++
	}
	return wave
}

// anyDue tells whether there are members to ask now.
func (r *reader) anyDue(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ready) > 0 || len(r.idle) > 0 && !r.idle[0].at.After(now)
}

// nextOfAll takes members that this claim has not asked, those that may have something first.
func (r *reader) nextOfAll(now time.Time, most int, asked map[*look]bool) []*look {
	var wave []*look
	for _, l := range r.looks {
		if !asked[l] && r.late[l] == nil && l.member.trouble(now) == nil {
			wave = append(wave, l)
		}
	}
	slices.SortFunc(wave, func(a, b *look) int {
		switch {
		case a.inIdle != b.inIdle && b.inIdle:
			return -1
		case a.inIdle != b.inIdle:
			return 1
		case a.pass != b.pass:
			return int(math.Copysign(1, a.pass-b.pass))
		}
		return strings.Compare(a.member.name(), b.member.name())
	})
	wave = wave[:min(len(wave), most)]
	for _, l := range wave {
		l.asking++
	}
	return wave
}

// again takes a member that gave all that it was asked for.
func (r *reader) again(l *look) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.asking++
	r.remove(l)
}

// passOver takes note of a member that the claim leaves out: a later one asks it.
func (r *reader) passOver(l *look) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.asking--
	if r.looks[l.member.name()] == l {
		r.place(l, false)
	}
}

// asked takes note of what a member gave. age is how long its oldest record had waited.
func (r *reader) asked(l *look, found int, err error, age, longest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.asking--
	if r.looks[l.member.name()] != l {
		return
	}
	woken := l.woken
	if l.asking == 0 {
		l.woken = false
	}
	if found > 0 {
		l.weight = weightOf(age)
		r.clock = max(r.clock, l.pass)
		l.pass += float64(found) / l.weight
		r.place(l, false)
		return
	}
	if err == nil && woken {
		r.place(l, false)
		return
	}
	if err != nil {
		r.leaveOut(l, time.Now())
		return
	}
	l.weight = 1
	l.pause = min(max(2*l.pause, firstIdle), longest)
	l.at = time.Now().Add(l.pause)
	r.place(l, true)
}

// weightOf grows with the age, slowly, up to sixteen times.
func weightOf(age time.Duration) float64 {
	return min(1+math.Log2(1+max(age, 0).Seconds()), 16)
}

// byPass is a heap.
type byPass []*look

func (h byPass) Len() int           { return len(h) }
func (h byPass) Less(i, j int) bool { return h[i].pass < h[j].pass }
func (h byPass) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].index, h[j].index = i, j }
func (h *byPass) Push(x any)        { push((*[]*look)(h), x) }
func (h *byPass) Pop() any          { return pop((*[]*look)(h)) }

// byTime is a heap.
type byTime []*look

func (h byTime) Len() int           { return len(h) }
func (h byTime) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h byTime) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].index, h[j].index = i, j }
func (h *byTime) Push(x any)        { push((*[]*look)(h), x) }
func (h *byTime) Pop() any          { return pop((*[]*look)(h)) }

func push(h *[]*look, x any) {
	l := x.(*look)
	l.index = len(*h)
	*h = append(*h, l)
}

func pop(h *[]*look) *look {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	l.index = -1
	return l
}
