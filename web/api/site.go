package api

import (
	"cmp"
	"runtime"
	"strings"

	"github.com/better-compute/bcd/app"
)

// Keys of the settings people may change.
const (
	keySiteName = "site.name"
	keySSHKeys  = "deploy.ssh-keys"
)

// Settings is what people may change of the appliance.
type Settings struct {
	SiteName string   `json:"siteName"` // shown in the console's header: the one set here, else [site] name of config.toml
	SSHKeys  []string `json:"sshKeys"`  // filled into every new deploy form
}

// SettingsChange changes settings; absent members stay.
type SettingsChange struct {
	SiteName *string   `json:"siteName,omitempty" doc:"name in the console's header; empty: [site] name of config.toml"`
	SSHKeys  *[]string `json:"sshKeys,omitempty" doc:"public key filled into every new deploy form" file:"true"`
}

// VersionInfo names the program.
type VersionInfo struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	Key     string `json:"tlsSpkiSha256,omitempty"` // of the console's TLS key, as printed at the first start
}

func (a *API) siteRoutes() []Route {
	return []Route{
		on(Route{ID: "settings.get", Method: "GET", Path: "/api/v1/settings", Permission: app.PermSettingsRead, Summary: "Show the settings.", CLI: CLI{"settings", "show"}}, a.getSettings),
		on(Route{ID: "settings.change", Method: "PATCH", Path: "/api/v1/settings", Permission: app.PermSettingsWrite, Summary: "Change settings.", CLI: CLI{"settings", "set"}}, a.changeSettings),
		on(Route{ID: "health.get", Method: "GET", Path: "/api/v1/health", Permission: app.PermSettingsRead, Summary: "List what is not as it should be, with the way out.", CLI: CLI{"health", "show"}},
			func(c *Call, _ none) (List[Warning], error) { return list(a.Health.Warnings(c)) }),
		on(Route{ID: "version.get", Method: "GET", Path: "/api/v1/version", Permission: LoggedIn, Summary: "Show the version.", CLI: CLI{"version", "show"}},
			a.version),
		on(Route{ID: "openapi.get", Method: "GET", Path: "/api/v1/openapi.json", Permission: Public, Raw: true, Summary: "This document."}, a.openAPI),
	}
}

func (a *API) version(*Call, none) (VersionInfo, error) {
	v := VersionInfo{Version: a.Version, Go: runtime.Version()}
	if a.Key != nil {
		v.Key = a.Key()
	}
	return v, nil
}

func (a *API) openAPI(c *Call, _ rawInput) (none, error) {
	c.w.Header().Set("Content-Type", "application/json")
	_, err := c.w.Write(a.doc)
	return none{}, err
}

func (a *API) getSettings(c *Call, _ none) (Settings, error) {
	name, err := a.Settings.Setting(c, keySiteName)
	if err != nil {
		return Settings{}, err
	}
	name = cmp.Or(name, a.SiteName)
	keys, err := a.Settings.Setting(c, keySSHKeys)
	out := Settings{SiteName: name, SSHKeys: []string{}}
	if keys != "" {
		out.SSHKeys = strings.Split(keys, "\n")
	}
	return out, err
}

// ValidSiteName checks what a site may be called; field is named in the error.
func ValidSiteName(field, name string) error { return app.ValidLine(field, name, 60) }

func (a *API) changeSettings(c *Call, in SettingsChange) (Settings, error) {
	set := map[string]string{}
	if in.SiteName != nil {
		if err := ValidSiteName("siteName", *in.SiteName); err != nil {
			return Settings{}, err
		}
		set[keySiteName] = *in.SiteName
		if *in.SiteName == a.SiteName {
			set[keySiteName] = "" // a form that was saved as it came still follows config.toml
		}
	}
	if in.SSHKeys != nil {
		if err := validKeys("sshKeys", *in.SSHKeys); err != nil {
			return Settings{}, err
		}
		set[keySSHKeys] = strings.Join(*in.SSHKeys, "\n")
	}
	for k, v := range set {
		if err := a.Settings.SetSetting(c, k, v); err != nil {
			return Settings{}, err
		}
		if err := a.Bus.Record(c, app.Event{Kind: "settings.changed", Actor: c.actor(), Message: "changed the setting " + k}); err != nil {
			return Settings{}, err
		}
	}
	return a.getSettings(c, none{})
}
