package console

import (
	"bytes"
	"encoding/json"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/console/views"
)

func systemNetworkPages() []Page {
	return []Page{
		get("/machines/{id}/network", systemNetwork), post("/machines/{id}/network", saveSystemNetwork),
		post("/machines/{id}/network/delete", clearSystemNetwork),
	}
}

func systemNetwork(c *Console, q *request) error {
	return q.machineView("Network of", views.SystemNetwork)
}

func saveSystemNetwork(c *Console, q *request) error {
	n, err := readSystemNetwork(q.form.Get("network"))
	if err == nil {
		_, err = ask[*app.SystemNetwork](q, "machines.network.put", n)
	}
	if err != nil {
		q.refuse(err)
		return systemNetwork(c, q)
	}
	return q.done("/machines/"+q.Path["id"], "The next deploy sets up this network.")
}

func clearSystemNetwork(c *Console, q *request) error {
	if _, err := ask[any](q, "machines.network.delete", nil); err != nil {
		q.refuse(err)
		return systemNetwork(c, q)
	}
	return q.done("/machines/"+q.Path["id"], "The next deploy asks DHCP on every port.")
}

// readSystemNetwork reads the YAML (or JSON) of the form as strictly as the API reads its JSON.
func readSystemNetwork(text string) (app.SystemNetwork, error) {
	var n app.SystemNetwork
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		return n, app.Invalid("network", "is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: ")).Do("mend that line; indent with spaces")
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return n, app.Invalid("network", "has a key that is not text")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&n); err != nil {
		return n, app.Invalid("network", "cannot be read: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return n, nil
}
