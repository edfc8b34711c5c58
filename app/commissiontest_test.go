package app_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
)

func TestCatalogOfTests(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range app.TestKinds() {
		if k.ID == "" || seen[k.ID] || k.Title == "" || k.Timeout <= 0 {
			t.Errorf("%+v", k)
		}
		seen[k.ID] = true
		names := map[string]bool{}
		for _, p := range k.Params {
			if names[p.Name] || p.Doc == "" || p.Unit == "" || p.Min > p.Max || p.Given && (p.Default < p.Min || p.Default > p.Max) || !p.Limit && !p.Given {
				t.Errorf("%s: %+v", k.ID, p)
			}
			names[p.Name] = true
		}
	}
	k, ok := app.KindOfTest("disk-read")
	if v := k.Values(map[string]float64{"seconds": 3}); !ok || v["seconds"] != 3 || v["maxErrors"] != 0 || len(v) != 3 {
		t.Errorf("%v: a limit without a default is off unless it is given", v)
	}
	if _, ok := app.KindOfTest(""); ok {
		t.Error("there is a test without a name")
	}
	for _, s := range app.DefaultTests() {
		if k, ok := app.KindOfTest(s.Test); !ok || k.Timeout > 2*time.Minute || s.Name() == "" {
			t.Errorf("%+v is made on every machine", s)
		}
	}
}

func TestValidTests(t *testing.T) {
	for name, c := range map[string]struct {
		spec app.TestSpec
		want string // field, "" when it is valid
	}{
		"plain":               {app.TestSpec{Test: "cpu"}, ""},
		"with limits":         {app.TestSpec{Test: "disk-read", With: map[string]float64{"seconds": 30, "minMBps": 150}, Timeout: app.Duration(time.Hour), Required: true}, ""},
		"script":              {app.TestSpec{Test: "script", Title: "Burn in", Script: "#!/bin/sh\n\techo ok\r\n"}, ""},
		"unknown":             {app.TestSpec{Test: "burn"}, "commissioning.0.test"},
		"unknown parameter":   {app.TestSpec{Test: "cpu", With: map[string]float64{"minutes": 1}}, "commissioning.0.with.minutes"},
		"out of range":        {app.TestSpec{Test: "cpu", With: map[string]float64{"seconds": 0}}, "commissioning.0.with.seconds"},
		"no number":           {app.TestSpec{Test: "cpu", With: map[string]float64{"seconds": math.NaN()}}, "commissioning.0.with.seconds"},
		"script with limits":  {app.TestSpec{Test: "script", Script: "true", With: map[string]float64{"seconds": 1}}, "commissioning.0.with.seconds"},
		"script of a test":    {app.TestSpec{Test: "cpu", Script: "true"}, "commissioning.0.script"},
		"no script":           {app.TestSpec{Test: "script", Script: " \n"}, "commissioning.0.script"},
		"large script":        {app.TestSpec{Test: "script", Script: strings.Repeat("x", app.MaxScript+1)}, "commissioning.0.script"},
		"script that is none": {app.TestSpec{Test: "script", Script: "echo \x00"}, "commissioning.0.script"},
		"too short":           {app.TestSpec{Test: "cpu", Timeout: 1}, "commissioning.0.timeout"},
		"too long":            {app.TestSpec{Test: "cpu", Timeout: app.Duration(25 * time.Hour)}, "commissioning.0.timeout"},
		"hostile title":       {app.TestSpec{Test: "cpu", Title: "a\nb"}, "commissioning.0.title"},
	} {
		p := &app.Profile{Name: "acme", Commissioning: []app.TestSpec{c.spec}}
		problems := app.Problems(p.Validate())
		switch {
		case c.want == "" && len(problems) > 0:
			t.Errorf("%s: %v", name, problems)
		case c.want != "" && (len(problems) != 1 || problems[0].Field != c.want):
			t.Errorf("%s: %v, not of %s", name, problems, c.want)
		}
	}
	if app.ValidTests("x", make([]app.TestSpec, 33)) == nil {
		t.Error("33 tests are taken")
	}
}
