package store

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
)

func agentStore(t *testing.T) *DB {
	t.Helper()
	db, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "bcd.db"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestBootIsTradedOnce(t *testing.T) {
	db, ctx, now := agentStore(t), t.Context(), time.Now().UTC()
	b := &app.Boot{Key: "boot-1", MachineID: "m-1", WorkflowID: "wf-1", Created: now}
	if err := db.CreateBoot(ctx, b); err != nil {
		t.Fatal(err)
	}
	s := &app.AgentSession{ID: "ses-1", BootKey: b.Key, MachineID: "m-1", WorkflowID: "wf-1", Created: now}
	if err := db.SpendBoot(ctx, s, now); err != nil {
		t.Fatal(err)
	}
	err := db.SpendBoot(ctx, &app.AgentSession{ID: "ses-2", BootKey: b.Key, MachineID: "m-1"}, now)
	if e, _ := app.AsError(err); e == nil || e.Reason != "boot-token-spent" {
		t.Fatalf("a second trade gave %v", err)
	}
	if live, err := db.LiveAgentSession(ctx, "m-1"); err != nil || live.ID != "ses-1" {
		t.Fatalf("live session %+v, %v", live, err)
	}
}

func TestNewBootEndsTheOldOneAndItsSession(t *testing.T) {
	db, ctx, now := agentStore(t), t.Context(), time.Now().UTC()
	for _, key := range []string{"boot-1", "boot-2"} {
		if err := db.CreateBoot(ctx, &app.Boot{Key: key, MachineID: "m-1", Created: now}); err != nil {
			t.Fatal(err)
		}
		if key == "boot-1" {
			if err := db.SpendBoot(ctx, &app.AgentSession{ID: "ses-1", BootKey: key, MachineID: "m-1"}, now); err != nil {
				t.Fatal(err)
			}
		}
	}
	if b, err := db.LiveBoot(ctx, "m-1"); err != nil || b.Key != "boot-2" {
		t.Fatalf("live boot %+v, %v", b, err)
	}
	if _, err := db.LiveAgentSession(ctx, "m-1"); app.CodeOf(err) != app.NotFound {
		t.Fatalf("the old session lives: %v", err)
	}
	err := db.SpendBoot(ctx, &app.AgentSession{ID: "ses-3", BootKey: "boot-1", MachineID: "m-1"}, now)
	if e, _ := app.AsError(err); e == nil || e.Reason != "boot-over" {
		t.Fatalf("trading a boot that is over gave %v", err)
	}
	if err := db.RevokeBoots(ctx, "m-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.LiveBoot(ctx, "m-1"); app.CodeOf(err) != app.NotFound {
		t.Fatalf("a boot lives: %v", err)
	}
}

func TestReadsOfAnImageAreNoted(t *testing.T) {
	db, ctx := agentStore(t), t.Context()
	if err := db.CreateBoot(ctx, &app.Boot{Key: "boot-1", MachineID: "m-1", ISO: "img-1", Media: true, Created: time.Now().UTC()}); err != nil {
		t.Fatal(err)
	}
	note := func(key string, n, want int64) {
		t.Helper()
		if err := db.NoteRead(ctx, key, n); err != nil {
			t.Fatal(err)
		}
		if b, err := db.Boot(ctx, key); err != nil || b.Read != want || b.ISO != "img-1" || !b.Media {
			t.Errorf("%+v, %v, want %d bytes", b, err, want)
		}
	}
	note("boot-1", 2048, 2048)
	note("boot-1", 100, 2048) // two requests at once may be noted in the wrong order
	note("boot-1", 4096, 4096)
	if err := db.RevokeBoots(ctx, "m-1"); err != nil {
		t.Fatal(err)
	}
	note("boot-1", 9000, 4096)
	if _, err := db.LiveBoot(ctx, "m-1"); app.CodeOf(err) != app.NotFound {
		t.Errorf("a read brought a boot back: %v", err)
	}
	if err := db.NoteRead(ctx, "boot-9", 1); app.CodeOf(err) != app.NotFound {
		t.Errorf("an unknown boot gave %v", err)
	}
}

func TestPhoneHomeIsFoundByHash(t *testing.T) {
	db, ctx := agentStore(t), t.Context()
	if err := db.PutPhoneHome(ctx, &app.PhoneHome{SecretHash: "h", MachineID: "m-1", WorkflowID: "wf-1", Created: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if p, err := db.PhoneHome(ctx, "h"); err != nil || p.MachineID != "m-1" {
		t.Fatalf("%+v, %v", p, err)
	}
	if err := db.PutPhoneHome(ctx, &app.PhoneHome{SecretHash: "h2", MachineID: "m-1", WorkflowID: "wf-2", Created: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if _, err := db.PhoneHome(ctx, "h"); app.CodeOf(err) != app.NotFound {
		t.Fatalf("the address of an earlier deploy still counts: %v", err)
	}
	if err := db.DeletePhoneHomes(ctx, "m-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.PhoneHome(ctx, "h2"); app.CodeOf(err) != app.NotFound {
		t.Fatalf("still there: %v", err)
	}
}
