package drivers

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/better-compute/bcd/app"
)

// settings is a SettingStore in memory.
type settings struct {
	mu   sync.Mutex
	kept map[string]string
	err  error
}

func (s *settings) Setting(_ context.Context, key string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept[key], s.err
}

func (s *settings) SetSetting(_ context.Context, key, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.kept[key] = value
	}
	return s.err
}

// picking makes a registry over kept settings that serves versions of ipmi.
func picking(t *testing.T, s *settings, versions ...string) *Registry {
	t.Helper()
	r := New(Config{Settings: s})
	if err := r.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, v := range versions {
		if err := r.Register(define(t, "ipmi", v, &fakeBMC{}, "power"), "bcx-ipmi"); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func wantActive(t *testing.T, r *Registry, version string) {
	t.Helper()
	list, err := r.List("power")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.Active != (e.Version == version) {
			t.Errorf("%s is active: %v, want %s to be", e.Version, e.Active, version)
		}
	}
	if d, err := r.Driver("ipmi"); err != nil || d.Version() != version {
		t.Errorf("calls go to %v (%v), want %s", d, err, version)
	}
}

func TestAPickIsKept(t *testing.T) {
	s := &settings{kept: map[string]string{}}
	told := 0
	r := picking(t, s, "1.0.0", "2.0.0")
	r.cfg.Changed = func() { told++ }
	wantActive(t, r, "2.0.0")
	if err := r.Pick(t.Context(), "ipmi", "1.0.0"); err != nil {
		t.Fatal(err)
	}
	wantActive(t, r, "1.0.0")
	if told != 1 {
		t.Errorf("bindings were told %d times", told)
	}
	again := picking(t, s, "2.0.0") // the picked version's plugin is late
	wantActive(t, again, "2.0.0")
	if err := again.Register(define(t, "ipmi", "1.0.0", &fakeBMC{}, "power"), "bcx-ipmi"); err != nil {
		t.Fatal(err)
	}
	wantActive(t, again, "1.0.0")
	if err := again.Pick(t.Context(), "ipmi", ""); err != nil {
		t.Fatal(err)
	}
	wantActive(t, again, "2.0.0")
	wantActive(t, picking(t, s, "1.0.0", "2.0.0"), "2.0.0")
}

func TestAPickThatCannotBe(t *testing.T) {
	s := &settings{kept: map[string]string{}}
	r := picking(t, s, "1.0.0", "2.0.0")
	wantError(t, r.Pick(t.Context(), "ipmi", "3.0.0"), app.NotFound, "", "")
	wantError(t, r.Pick(t.Context(), "nobody", ""), app.NotFound, "", "")
	s.err = errors.New("the disk is full")
	if err := r.Pick(t.Context(), "ipmi", "1.0.0"); !errors.Is(err, s.err) {
		t.Errorf("a pick that was not kept gave %v", err)
	}
	wantActive(t, r, "2.0.0")
	for kept, bad := range map[string]bool{"": false, "null": false, "{}": false, "[1]": true} {
		r := New(Config{Settings: &settings{kept: map[string]string{settingPicks: kept}}})
		if err := r.Restore(t.Context()); (err != nil) != bad {
			t.Errorf("kept %q: %v", kept, err)
		}
		if err := r.Register(define(t, "ipmi", "1.0.0", &fakeBMC{}, "power"), "bcx-ipmi"); err != nil {
			t.Fatal(err)
		}
		if err := r.Pick(t.Context(), "ipmi", "1.0.0"); !bad && err != nil {
			t.Errorf("kept %q: a pick gave %v", kept, err)
		}
	}
}
