#!/usr/bin/python3
# What the installer of a distribution does at the end: a loader in a folder of its own on the EFI system partition, a boot
# entry for it, and that entry first in the boot order. It says on the console how that ended.
import os, shutil, struct, sys, traceback, uuid

VARS, GLOBAL = "/sys/firmware/efi/efivars/", "8be4df61-93ca-11d2-aa0d-00e098032b8c"


def read(path, mode="r"):
    with open(path, mode) as f:
        return f.read()


def write(name, value):
    with open(VARS + name + "-" + GLOBAL, "wb", buffering=0) as f:
        f.write(struct.pack("<I", 7) + value)


def partition(mount):
    """The hard drive node of a device path for what is mounted there."""
    for line in read("/proc/mounts").splitlines():
        device, at = line.split()[:2]
        if at == mount:
            break
    else:
        sys.exit("nothing is mounted at " + mount)
    block = "/sys/class/block/" + os.path.basename(os.path.realpath(device)) + "/"
    ids = "/dev/disk/by-partuuid/"
    guid = next(i for i in os.listdir(ids) if os.path.realpath(ids + i) == os.path.realpath(device))
    number, start, size = (int(read(block + n)) for n in ("partition", "start", "size"))
    return struct.pack("<BBHIQQ16sBB", 4, 1, 42, number, start, size, uuid.UUID(guid).bytes_le, 2, 2)


def main():
    esp = "/boot/efi"
    os.makedirs(esp + "/EFI/debian", exist_ok=True)
    shutil.copyfile(esp + "/EFI/BOOT/BOOTX64.EFI", esp + "/EFI/debian/grubx64.efi")
    file = "\\EFI\\debian\\grubx64.efi\0".encode("utf-16-le")
    path = partition(esp) + struct.pack("<BBH", 4, 4, 4 + len(file)) + file + struct.pack("<BBH", 0x7F, 0xFF, 4)
    entry = struct.pack("<IH", 1, len(path)) + "debian\0".encode("utf-16-le") + path
    number = next(n for n in range(0x10000) if not os.path.exists("%sBoot%04X-%s" % (VARS, n, GLOBAL)))
    order = read(VARS + "BootOrder-" + GLOBAL, "rb")[4:]
    write("Boot%04X" % number, entry)
    write("BootOrder", struct.pack("<H", number) + order)
    if read(VARS + "BootOrder-" + GLOBAL, "rb")[4:6] != struct.pack("<H", number):
        sys.exit("the firmware took another order")
    print("FIRST-IN-THE-BOOT-ORDER Boot%04X" % number)


sys.stdout = sys.stderr = open("/dev/console", "w")
try:
    main()
except BaseException:
    traceback.print_exc()
    print("STAYED-IN-THE-BOOT-ORDER")
sys.stdout.flush()
