package deploy

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/better-compute/bcd/app"
)

// SeedInput is what the NoCloud seed of an installed system says.
type SeedInput struct {
	InstanceID, Hostname string
	SSHKeys              []string
	UserData             string             // passed on byte-identical; empty: an empty cloud-config
	PhoneHome            string             // URL
	Network              *app.SystemNetwork // nil: the image's own, as a rule DHCP on every port
}

// Seed renders the files of a NoCloud seed (cloud-init's documentation, "NoCloud"): meta-data and user-data are the
// operator's, vendor-data is ours and holds a script that calls home at the end of every boot.
func Seed(in SeedInput) map[string][]byte {
	meta, _ := json.MarshalIndent(map[string]any{ // strings marshal; JSON is YAML
		"instance-id": in.InstanceID, "local-hostname": in.Hostname, "public-keys": append([]string{}, in.SSHKeys...),
	}, "", "  ")
	user := in.UserData
	if user == "" {
		user = "#cloud-config\n{}\n"
	}
	files := map[string][]byte{
		"meta-data":   append(meta, '\n'),
		"user-data":   []byte(user),
		"vendor-data": []byte(vendorData(in.PhoneHome)),
	}
	if in.Network != nil {
		files["network-config"] = networkConfig(in.Network)
	}
	return files
}

// vendorData is one script, not a cloud-config: a user-data that sets the same keys would replace those. cloud-init runs it
// once for an instance (module scripts-vendor); it installs the script that calls on every boot (scripts-per-boot), which
// comes later in the same boot. Where there is systemd, later boots call as soon as network and sshd are up, and need neither
// wait for cloud-init nor have it.
func vendorData(url string) string {
	return `#!/bin/sh
set -e
dir=/var/lib/cloud/scripts/per-boot
mkdir -p "$dir"
cat > "$dir/90-bcd-phone-home" <<'BCD_SCRIPT_ENDS'
` + phoneHomeScript(url) + `BCD_SCRIPT_ENDS
chmod 700 "$dir/90-bcd-phone-home"
units=/etc/systemd/system
if [ -d "$units" ]; then
  mkdir -p "$units/multi-user.target.wants"
  cat > "$units/bcd-phone-home.service" <<BCD_UNIT_ENDS
[Unit]
Description=Tell the provisioning appliance that this system runs
Wants=network-online.target
After=network-online.target ssh.service sshd.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh $dir/90-bcd-phone-home
[Install]
WantedBy=multi-user.target
BCD_UNIT_ENDS
  ln -sf ../bcd-phone-home.service "$units/multi-user.target.wants/bcd-phone-home.service"
fi
`
}

// phoneHomeScript calls the site with the boot id, with whichever client the system has, for up to ten minutes in the
// background so that it never holds up a boot.
func phoneHomeScript(url string) string {
	rest := strings.TrimPrefix(url, "http://")
	host, path, _ := strings.Cut(rest, "/")
	name, port, ok := strings.Cut(host, ":")
	if !ok {
		port = "80"
	}
	return fmt.Sprintf(`#!/bin/sh
# Tells the provisioning appliance that this system runs, once a boot. The address works for nothing else.
[ -d /run ] && ! mkdir /run/bcd-phone-home 2>/dev/null && exit 0
url='%s' host='%s' port='%s' path='/%s'
boot=$(cat /proc/sys/kernel/random/boot_id)
call() {
  if command -v curl >/dev/null; then curl -fsS -m 5 -o /dev/null -d "$boot" "$url"
  elif command -v wget >/dev/null; then wget -q -T 5 -O /dev/null --post-data="$boot" "$url"
  elif command -v bash >/dev/null; then bash -c 'exec 3<>"/dev/tcp/$0/$1" && printf "POST %%s HTTP/1.0\r\nHost: %%s\r\nContent-Length: %%d\r\n\r\n%%s" "$2" "$0" "${#3}" "$3" >&3 && head -n1 <&3 | grep -q " 2"' "$host" "$port" "$path" "$boot"
  else python3 -c 'import sys,urllib.request as r; r.urlopen(sys.argv[1], sys.argv[2].encode(), 5)' "$url" "$boot"
  fi
}
(
  n=0
  until call; do
    n=$((n + 1))
    [ "$n" -ge 120 ] && exit 1
    sleep 5
  done
) >/dev/null 2>&1 &
`, url, name, port, path)
}
