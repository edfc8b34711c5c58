package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
)

func TestKexecTrials(t *testing.T) {
	db := open(t, "")
	ctx := t.Context()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	put := func(attempt, make string, o app.KexecOutcome, after time.Duration) {
		t.Helper()
		if err := db.PutKexecTrial(ctx, &app.KexecTrial{Attempt: attempt, Make: make, Image: "debian", Machine: "node1", Outcome: o, Time: at.Add(after)}); err != nil {
			t.Fatal(err)
		}
	}
	list := func(make string) []app.KexecTrial {
		t.Helper()
		all, err := db.ListKexecTrials(ctx, make)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	put("a", "R1", app.KexecSilent, 0)
	put("b", "R1", app.KexecWorked, time.Hour)
	put("b", "R1", app.KexecWorked, 2*time.Hour) // told again after a crash
	put("c", "R2", app.KexecRefused, 0)
	if all := list("R1"); len(all) != 2 || all[0].Attempt != "b" || !all[0].Time.Equal(at.Add(2*time.Hour)) || all[1].Outcome != app.KexecSilent {
		t.Errorf("%+v", all)
	}
	for i := range maxKexecTrials + 5 {
		put(fmt.Sprint("x", i), "R2", app.KexecWorked, time.Duration(i+1)*time.Minute)
	}
	if all := list("R2"); len(all) != maxKexecTrials || all[len(all)-1].Outcome == app.KexecRefused {
		t.Errorf("%d trials are kept", len(all))
	}
	for range 2 { // the second time, there is none
		if err := db.ForgetKexecTrial(ctx, "a"); err != nil || len(list("R1")) != 1 || list("R1")[0].Attempt != "b" {
			t.Errorf("%+v, %v", list("R1"), err)
		}
	}
	if n, err := db.ForgetKexecTrials(ctx, "R1"); err != nil || n != 1 || len(list("R1")) != 0 || len(list("R2")) == 0 {
		t.Errorf("forgot %d, %v", n, err)
	}
	if n, err := db.ForgetKexecTrials(ctx, "R1"); err != nil || n != 0 {
		t.Errorf("forgot %d, %v", n, err)
	}
}
