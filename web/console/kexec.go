package console

import (
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/console/views"
)

// kexec adds how kexec went on machines of the model.
func (q *request) kexec(d *views.MachineData) (err error) {
	d.Kexec, err = ask[*api.KexecReport](q, "machines.kexec", nil)
	return err
}

func forgetKexec(_ *Console, q *request) error {
	_, err := ask[any](q, "machines.forget-kexec", nil)
	return q.back(err, "What was known of kexec on this model is forgotten.")
}
