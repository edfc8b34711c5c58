package chunk

import (
	"cmp"
	"slices"
)

// Limits says how chunks are gathered into spans. All are bytes.
type Limits struct {
	Raw   int   // raw bytes of one span's chunks and of one run, at least MaxChunkBytes
	Fetch int   // bytes of one request
	Gap   int   // bytes of the pack that are fetched and thrown away rather than making a second request
	Hole  int   // zero bytes inside a write that are written rather than splitting it
	Last  int64 // chunks that start below this offset go into the last spans: the partition table is written last
}

// DefaultLimits keep one span's buffers below 8 MiB.
var DefaultLimits = Limits{Raw: 4 << 20, Fetch: 4 << 20, Gap: 64 << 10, Hole: 128 << 10, Last: 1 << 20}

// Span is one Range request and the writes it feeds.
type Span struct {
	Pack uint32 // index into Index.Packs
	Off  int64  // in the pack
	Len  int    // bytes to fetch
	Runs []Run
}

// Raw is the number of bytes the span's runs write.
func (s *Span) Raw() (n int64) {
	for _, r := range s.Runs {
		n += int64(r.Size)
	}
	return n
}

// Run is one write: chunks, by rising offset, with short holes of zeros between them.
type Run struct {
	Offset int64 // in the image
	Size   int
	Chunks []int32 // indexes into Index.Chunks
}

// Extent is a byte range of the image.
type Extent struct{ Offset, Size int64 }

// Plan is all work of a deploy: every byte of the image is in exactly one run or one zero extent. The end of the last
// run, or of the last extent, may lie up to Block-1 bytes after the image.
type Plan struct {
	Spans []Span
	Zeros []Extent
}

// Plan gathers the chunks of an image into spans, ordered by where they write.
func (x *Index) Plan(l Limits) *Plan { return x.PlanWithout(nil, l) }

// PlanWithout leaves out the chunks that held names, by their number, because they are on the disk already. nil: none.
func (x *Index) PlanWithout(held []bool, l Limits) *Plan {
	order := make([]int32, 0, len(x.Chunks))
	for i := range x.Chunks {
		if held == nil || !held[i] {
			order = append(order, int32(i))
		}
	}
	late := func(i int32) int {
		if x.Chunks[i].Offset < l.Last {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		ca, cb := &x.Chunks[a], &x.Chunks[b]
		return cmp.Or(cmp.Compare(late(a), late(b)), cmp.Compare(ca.Pack, cb.Pack), cmp.Compare(ca.PackOff, cb.PackOff), cmp.Compare(a, b))
	})
	p := &Plan{}
	for len(order) > 0 {
		n := x.fit(order, l, late)
		p.Spans = append(p.Spans, x.span(order[:n:n], l))
		order = order[n:]
	}
	slices.SortStableFunc(p.Spans, func(a, b Span) int {
		ca, cb := a.Runs[0].Chunks[0], b.Runs[0].Chunks[0]
		return cmp.Or(cmp.Compare(late(ca), late(cb)), cmp.Compare(ca, cb))
	})
	p.Zeros = x.zeros(p.Spans, held)
	return p
}

// fit tells how many of the ordered chunks make the next span.
func (x *Index) fit(order []int32, l Limits, late func(int32) int) int {
	first := &x.Chunks[order[0]]
	start, end, raw := int64(first.PackOff), int64(first.PackOff)+int64(first.Stored), int(first.Size)
	for n := 1; n < len(order); n++ {
		c := &x.Chunks[order[n]]
		stop := max(end, int64(c.PackOff)+int64(c.Stored))
		if c.Pack != first.Pack || late(order[n]) != late(order[0]) || int64(c.PackOff)-end > int64(l.Gap) ||
			stop-start > int64(l.Fetch) || raw+int(c.Size) > l.Raw {
			return n
		}
		end = stop
		raw += int(c.Size)
	}
	return len(order)
}

// span makes runs of chunks that are neighbours in the image. It reorders list.
func (x *Index) span(list []int32, l Limits) Span {
	first := &x.Chunks[list[0]]
	s := Span{Pack: first.Pack, Off: int64(first.PackOff)}
	for _, i := range list {
		c := &x.Chunks[i]
		s.Len = max(s.Len, int(int64(c.PackOff)+int64(c.Stored)-s.Off))
	}
	slices.Sort(list)
	at, raw := 0, 0
	for n := 1; n <= len(list); n++ {
		prev := &x.Chunks[list[n-1]]
		raw += int(prev.Size)
		if n < len(list) && list[n] == list[n-1]+1 {
			hole := int(min(x.Chunks[list[n]].Offset-prev.End(), int64(l.Hole)+1))
			if hole <= l.Hole && raw+hole+int(x.Chunks[list[n]].Size) <= l.Raw {
				raw += hole
				continue
			}
		}
		o := x.Chunks[list[at]].Offset
		s.Runs = append(s.Runs, Run{Offset: o, Size: int(prev.End() - o), Chunks: list[at:n:n]})
		at, raw = n, 0
	}
	return s
}

// zeros gives what neither a run nor a held chunk covers.
func (x *Index) zeros(spans []Span, held []bool) (out []Extent) {
	var runs []Extent
	for i, h := range held {
		if h {
			runs = append(runs, Extent{x.Chunks[i].Offset, int64(x.Chunks[i].Size)})
		}
	}
	for i := range spans {
		for _, r := range spans[i].Runs {
			runs = append(runs, Extent{r.Offset, int64(r.Size)})
		}
	}
	slices.SortFunc(runs, func(a, b Extent) int { return cmp.Compare(a.Offset, b.Offset) })
	var at int64
	for _, r := range runs {
		if r.Offset > at {
			out = append(out, Extent{at, r.Offset - at})
		}
		at = r.Offset + r.Size
	}
	if end := (x.RawBytes + Block - 1) / Block * Block; at < end {
		out = append(out, Extent{at, end - at})
	}
	return out
}
