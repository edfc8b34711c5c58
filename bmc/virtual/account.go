package virtual

import (
	"encoding/json"
	"net/http"
)

const (
	accountsRoot = root + "/AccountService"
	accountsPath = accountsRoot + "/Accounts"
	accountPath  = accountsPath + "/1"
)

// Password is the one that the BMC takes now.
func (m *Machine) Password() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.password
}

func (m *Machine) accountService() any {
	r := resource(accountsRoot, "#AccountService.v1_10_0.AccountService", "AccountService", "Account Service")
	r["ServiceEnabled"], r["MinPasswordLength"], r["MaxPasswordLength"] = true, minPassword, maxPassword
	r["Accounts"] = link(accountsPath)
	return r
}

func (m *Machine) account() any {
	r := resource(accountPath, "#ManagerAccount.v1_8_0.ManagerAccount", "1", "The account")
	r["UserName"], r["Enabled"], r["Locked"] = m.cfg.Username, true, false
	r["Password"] = nil // never shown (DSP2046, ManagerAccount)
	r["RoleId"] = "Administrator"
	return r
}

// Lengths of a password that the BMC takes, in bytes.
const (
	minPassword = 8
	maxPassword = 64
)

// patchAccount changes the password. Sessions that are open stay, as on most BMCs.
func (m *Machine) patchAccount(w http.ResponseWriter, r *http.Request) {
	var body map[string]json.RawMessage
	if !decode(w, r, &body) {
		return
	}
	for _, name := range sorted(body) {
		if name != "Password" {
			fail(w, readOnly(name, "#/"+name))
			return
		}
	}
	var password string
	if err := json.Unmarshal(body["Password"], &password); err != nil {
		fail(w, wrongType("its value", "Password", "#/Password"))
		return
	}
	if len(password) < minPassword || len(password) > maxPassword {
		fail(w, notInList("its value", "Password", "#/Password"))
		return
	}
	m.mu.Lock()
	m.state.password = password
	m.mu.Unlock()
	m.cfg.Log.Info("password changed", "machine", m.cfg.Name)
	reply(w, http.StatusOK, m.account())
}
