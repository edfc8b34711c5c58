package health

import (
	"context"
	"errors"
	"testing"

	"github.com/better-compute/bcd/app"
)

type images struct {
	app.ImageStore
	list []app.Image
}

func (i images) ListImages(context.Context) ([]app.Image, error) { return i.list, nil }

func TestWorstComesFirstAndAFailedCheckIsAWarning(t *testing.T) {
	var s Service
	s.Add("a", func(context.Context) ([]Warning, error) { return []Warning{{Code: "low", Level: "info"}}, nil })
	s.Add("b", func(context.Context) ([]Warning, error) { return nil, errors.New("no") })
	s.Add("c", func(context.Context) ([]Warning, error) { return []Warning{{Code: "high", Level: "error"}}, nil })
	var codes []string
	for _, w := range s.Warnings(t.Context()) {
		codes = append(codes, w.Code)
	}
	if len(codes) != 3 || codes[0] != "high" || codes[1] != "check-failed" || codes[2] != "low" {
		t.Errorf("order %v", codes)
	}
}

func TestImagesSaysWhatToDo(t *testing.T) {
	for _, c := range []struct {
		list []app.Image
		want []string
	}{
		{nil, []string{"no-image"}},
		{[]app.Image{{Name: "a", State: "ready"}}, nil},
		{[]app.Image{{Name: "a", State: "failed", Reason: "cut"}}, []string{"image-failed", "no-image"}},
	} {
		got, err := Images(images{list: c.list})(t.Context())
		if err != nil || len(got) != len(c.want) {
			t.Fatalf("%+v: %+v, %v", c.list, got, err)
		}
		for i := range got {
			if got[i].Code != c.want[i] || got[i].WayOut == "" {
				t.Errorf("%+v: %+v", c.list, got)
			}
		}
	}
}

func TestSpaceRunsLow(t *testing.T) {
	const reserve = 512 << 20
	for left, want := range map[int64]string{0: "disk-full", reserve - 1: "disk-full", reserve: "disk-low", 2*reserve - 1: "disk-low", 2 * reserve: ""} {
		w, err := Space(func() (int64, error) { return left, nil }, reserve)(t.Context())
		code := ""
		if len(w) > 0 {
			code = w[0].Code
		}
		if err != nil || code != want {
			t.Errorf("%d bytes: %v, %v", left, w, err)
		}
	}
}
