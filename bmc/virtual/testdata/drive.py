"""Drives a virtual BMC with sushy, OpenStack's Redfish client. usage: drive.py URL USER PASSWORD basic|session CERTIFICATE IMAGE"""
import sys
import time

import sushy
from sushy import auth, exceptions

url, user, password, how, certificate, image = sys.argv[1:7]


def connect(secret):
    kind = auth.SessionAuth if how == "session" else auth.BasicAuth
    return sushy.Sushy(url, verify=certificate, auth=kind(user, secret))


def power(system, wanted):
    end = time.monotonic() + 20
    while True:
        system.refresh(force=True)
        if system.power_state == wanted:
            return
        assert time.monotonic() < end, "power is %s, want %s" % (system.power_state, wanted)
        time.sleep(0.02)


try:
    connect("wrong").get_system("/redfish/v1/Systems/1")
    raise SystemExit("a wrong password was taken")
except exceptions.AccessError:
    pass

root = connect(password)
[system] = root.get_system_collection().get_members()
assert system.uuid == "a0a1a2a3-b0b1-c0c1-d0d1-e0e1e2e3e4e5", system.uuid
assert system.serial_number == "SN0001"
assert system.power_state == sushy.POWER_STATE_OFF
assert system.memory_summary.size_gib == 1
assert sorted(system.ethernet_interfaces.summary) == ["00:00:5e:00:53:01", "00:00:5e:00:53:02"], system.ethernet_interfaces.summary
[manager] = system.managers
assert manager.manager_type == sushy.MANAGER_TYPE_BMC
[chassis] = system.chassis
assert chassis.chassis_type == sushy.ChassisType.RACK_MOUNT

allowed = system.get_allowed_reset_system_values()
assert {sushy.RESET_ON, sushy.RESET_FORCE_OFF, sushy.RESET_GRACEFUL_SHUTDOWN, sushy.RESET_NMI} <= allowed, allowed
assert sushy.BOOT_SOURCE_TARGET_PXE in system.get_allowed_system_boot_source_values()

system.set_system_boot_options(
    target=sushy.BOOT_SOURCE_TARGET_PXE, enabled=sushy.BOOT_SOURCE_ENABLED_ONCE, mode=sushy.BOOT_SOURCE_MODE_UEFI)
system.refresh(force=True)
assert system.boot["target"] == sushy.BOOT_SOURCE_TARGET_PXE
assert system.boot["enabled"] == sushy.BOOT_SOURCE_ENABLED_ONCE
assert system.boot["mode"] == sushy.BOOT_SOURCE_MODE_UEFI

system.reset_system(sushy.RESET_ON)
power(system, sushy.POWER_STATE_ON)
assert system.boot["enabled"] == sushy.BOOT_SOURCE_ENABLED_DISABLED, system.boot["enabled"]
assert system.json["LastResetTime"]
for kind in (sushy.RESET_FORCE_RESTART, sushy.RESET_NMI, sushy.RESET_GRACEFUL_RESTART):
    system.reset_system(kind)
    power(system, sushy.POWER_STATE_ON)
system.reset_system(sushy.RESET_GRACEFUL_SHUTDOWN)
power(system, sushy.POWER_STATE_OFF)
try:
    system.reset_system(sushy.RESET_GRACEFUL_SHUTDOWN)
    raise SystemExit("a machine that is off was shut down")
except exceptions.HTTPError as e:
    assert e.status_code == 409, e

def drive(manager):
    [cd] = [d for d in manager.virtual_media.get_members() if sushy.VIRTUAL_MEDIA_CD in d.media_types]
    return cd


def holds(cd, wanted):
    end = time.monotonic() + 20
    while True:
        cd.refresh(force=True)
        if bool(cd.inserted) == wanted:
            return
        assert time.monotonic() < end, "inserted is %s, want %s" % (cd.inserted, wanted)
        time.sleep(0.02)


for _ in range(2):
    cd = drive(manager)
    assert cd.inserted is False and cd.image is None, cd.json
    cd.insert_media(image)
    holds(cd, True)
    assert cd.image == image and cd.image_name == "a.iso", cd.json
    try:
        drive(manager).insert_media(image)
        raise SystemExit("a full drive took an image")
    except exceptions.HTTPError as e:
        assert e.status_code == 400, e
    system.set_system_boot_options(target=sushy.BOOT_SOURCE_TARGET_CD, enabled=sushy.BOOT_SOURCE_ENABLED_ONCE)
    system.reset_system(sushy.RESET_ON)
    power(system, sushy.POWER_STATE_ON)
    cd.eject_media()
    holds(cd, False)
    system.reset_system(sushy.RESET_FORCE_OFF)
    power(system, sushy.POWER_STATE_OFF)
cd.set_verify_certificate(True)
cd.refresh(force=True)
assert cd.verify_certificate is True, cd.json
try:
    cd.insert_media(image.replace("http:", "https:"))
    raise SystemExit("an image server without a certificate was taken")
except exceptions.HTTPError as e:
    assert e.status_code == 400, e
if how == "session":
    root._auth.close()
print("ok")
