package driver

import "context"

// Parts are the reads of a page, for a driver whose transactions see one moment.
type Parts interface {
	State() State
	Rows(ctx context.Context, searches ...Search) ([]Row, error)
	// Notes returns the notes that the page has.
	Notes(ctx context.Context, ask Ask) ([]Note, error)
	// Under returns the first rows under each name, up to limit for each.
	Under(ctx context.Context, line Line, names []string, limit int) ([]Row, error)
	Keys(ctx context.Context, line Line, owner string, keys []string) (map[string]KeyState, error)
}

// ReadPage reads a page part by part.
func ReadPage(ctx context.Context, t Parts, ask Ask) (p Page, err error) {
	s := t.State()
	p.Now = s.Now
	if p.Due, err = t.Rows(ctx, ask.Searches()...); err != nil || len(p.Due) > 0 {
		return p, err
	}
	unrouted, err := t.Rows(ctx, Search{By: ByUnrouted, Line: ask.Line, Limit: 1})
	if p.Unrouted = len(unrouted) > 0; err != nil {
		return p, err
	}
	if s.Notes {
		if p.Notes, err = t.Notes(ctx, ask); err != nil {
			return p, err
		}
	}
	if p.Held, err = readHeld(ctx, t, ask, p.Notes); err != nil {
		return p, err
	}
	if !ask.Keys {
		return p, nil
	}
	if p.Ready, err = t.Rows(ctx, Search{By: ByStage, Stage: Ready, Line: ask.Line, Limit: ask.Limit}); err != nil {
		return p, err
	}
	if keys := p.keys(); len(keys) > 0 {
		p.Keys, err = t.Keys(ctx, ask.Line, ask.Owner, keys)
	}
	return p, err
}

func readHeld(ctx context.Context, t Parts, ask Ask, notes []Note) (held []Row, err error) {
	var ofKeys, ofPauses []string
	for _, n := range notes {
		if _, ofKey := KeyOf(n.Name); ofKey {
			ofKeys = append(ofKeys, n.Name)
		} else {
			ofPauses = append(ofPauses, n.Name)
		}
	}
	if len(ofKeys) > 0 {
		held, err = t.Under(ctx, ask.Line, ofKeys, ask.Share(notes))
	}
	if len(ofPauses) == 0 || err != nil {
		return held, err
	}
	paused, err := t.Under(ctx, ask.Line, ofPauses, ask.Limit)
	return append(held, paused...), err
}

// ReadPages reads a page of each line as Tx.Pages returns them, line by line.
func ReadPages(ctx context.Context, t Parts, ask Ask, lines []Line) ([]Page, error) {
	pages := make([]Page, len(lines))
	for i, line := range lines {
		ask.Line, ask.Due = line, 1
		p, err := ReadPage(ctx, t, ask)
		if p.Busy = len(p.Due)+len(p.Notes) > 0 || p.Unrouted; err == nil && !p.Busy && !ask.Keys {
			if p.Held, err = t.Rows(ctx, Search{By: ByKeyed, Line: line, Limit: 1}); err == nil {
				p.Busy = len(p.Held) > 0
				p.Ready, err = t.Rows(ctx, Search{By: ByStage, Stage: Ready, Line: line, Limit: ask.Limit})
			}
		}
		if err != nil {
			return nil, err
		}
		if pages[i] = p; p.Busy {
			pages[i] = Page{Busy: true}
		}
	}
	return pages, nil
}

// keys are the keys of the page, each once.
func (p *Page) keys() (keys []string) {
	seen := map[string]bool{"": true}
	add := func(key string) {
		if !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	for _, n := range p.Notes {
		if key, ok := KeyOf(n.Name); ok {
			add(key)
		}
	}
	for _, rows := range [][]Row{p.Held, p.Ready} {
		for _, r := range rows {
			add(r.Key)
		}
	}
	return keys
}
