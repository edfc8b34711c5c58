package deploy

import (
	"encoding/json"

	"github.com/better-compute/bcd/app"
)

func decode(raw json.RawMessage, into any) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return app.Errorf(app.Internal, "bad-workflow-input", "the workflow's input cannot be read: %w", err)
	}
	return nil
}
