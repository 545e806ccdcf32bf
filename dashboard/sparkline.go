package dashboard

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// chart is a line for SVG, and the sentence that says the same to those who do not see it.
type chart struct {
	Points string
	// Label names what the line shows, with its last, least and largest value.
	Label string
	// Width and Height are those of the drawing.
	Width, Height int
}

// drawing draws one value of the points.
type drawing struct {
	name          string
	value         func(p point) float64
	text          func(v float64) string
	width, height int
	// most is the largest number of points.
	most int
}

func waiting(limit int) drawing {
	return drawing{
		name:  "Waiting",
		value: func(p point) float64 { return float64(p.waiting) },
		text:  func(v float64) string { return upTo(int(v), limit) },
	}
}

func lag() drawing {
	return drawing{
		name:  "Lag",
		value: func(p point) float64 { return p.lag.Seconds() },
		text:  func(v float64) string { return age(time.Duration(v * float64(time.Second))) },
	}
}

// smallPoints is how many points a small drawing has at most, because a table has many of them.
const smallPoints = 40

// small is for tables.
func (d drawing) small(points []point) chart {
	d.width, d.height, d.most = 120, 24, smallPoints
	return d.draw(points)
}

// large is for the page of a topic.
func (d drawing) large(points []point) chart {
	d.width, d.height, d.most = 600, 120, trailPoints+1
	return d.draw(points)
}

func (d drawing) draw(points []point) chart {
	c := chart{Width: d.width, Height: d.height}
	if len(points) == 0 {
		c.Label = d.name + ": not counted yet"
		return c
	}
	least, largest := d.value(points[0]), d.value(points[0])
	for _, p := range points {
		least, largest = min(least, d.value(p)), max(largest, d.value(p))
	}
	last := points[len(points)-1]
	c.Label = fmt.Sprintf("%s: %s now, between %s and %s in the last %s",
		d.name, d.text(d.value(last)), d.text(least), d.text(largest), age(last.at.Sub(points[0].at)))
	var line strings.Builder
	step := (len(points) + d.most - 1) / d.most
	for i, p := range points {
		// The last point is always there.
		if (len(points)-1-i)%step != 0 {
			continue
		}
		x := float64(d.width) - 1 - last.at.Sub(p.at).Seconds()*float64(d.width-2)/(trailPoints*trailStep).Seconds()
		y := float64(d.height) - 2
		if largest > 0 {
			y -= d.value(p) / largest * float64(d.height-4)
		}
		if line.Len() > 0 {
			line.WriteByte(' ')
		}
		line.WriteString(strconv.FormatFloat(max(x, 1), 'f', 1, 64) + "," + strconv.FormatFloat(y, 'f', 1, 64))
	}
	c.Points = line.String()
	return c
}

// processedPerMinute is how many records became processed within about the last minute, by the
// number that the store retains. It is a lower bound, because those whose retention ends in that time
// are missing. It is unknown where the store retains none, or as many as the limit of the counts,
// or if the first count is younger than 10 seconds.
func processedPerMinute(points []point) (perMinute int, known bool) {
	if len(points) < 2 {
		return 0, false
	}
	last := points[len(points)-1]
	first, more := last, 0
	for i := len(points) - 1; i > 0 && last.at.Sub(points[i-1].at) <= time.Minute; i-- {
		if points[i].manyProcessed || points[i-1].manyProcessed {
			return 0, false
		}
		first = points[i-1]
		more += max(0, points[i].processed-first.processed)
	}
	passed := last.at.Sub(first.at)
	if passed < 10*time.Second || last.processed == 0 && first.processed == 0 {
		return 0, false
	}
	return int(float64(more) * float64(time.Minute) / float64(passed)), true
}

// changePerMinute is how the number of waiting records changed within about the last minute. It is
// unknown if a count reached the limit, or if the first count is younger than 10 seconds.
func changePerMinute(points []point) (perMinute int, known bool) {
	if len(points) < 2 {
		return 0, false
	}
	last := points[len(points)-1]
	first := last
	for i := len(points) - 1; i >= 0 && last.at.Sub(points[i].at) <= time.Minute; i-- {
		first = points[i]
	}
	passed := last.at.Sub(first.at)
	if passed < 10*time.Second || last.full || first.full {
		return 0, false
	}
	return int(float64(last.waiting-first.waiting) * float64(time.Minute) / float64(passed)), true
}
