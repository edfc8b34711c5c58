package recorder_test

import (
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/recorder"
	"github.com/better-compute/bcd/app/recorder/recordertest"
)

func TestMemoryConforms(t *testing.T) {
	recordertest.Store(t, func(*testing.T) app.RecordStore { return &recorder.Memory{} })
}
