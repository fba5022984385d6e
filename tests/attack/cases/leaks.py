"""Information leaks: 60–65."""

import os
import re

from suite import case

HERE = os.path.dirname(os.path.abspath(__file__))
SECURITY = os.path.join(HERE, "..", "..", "..", "docs", "SECURITY.md")


def first_line(path):
    try:
        with open(path) as file:
            return file.readline().strip()
    except OSError:
        return ""


@case(60, "hostname, machine-id, boot_id")
def names(trial):
    script = "uname -n; cat /etc/hostname /etc/machine-id /var/lib/dbus/machine-id /proc/sys/kernel/random/boot_id " \
             "/proc/sys/kernel/hostname /proc/cmdline /sys/class/dmi/id/product_uuid /etc/hosts 2>/dev/null"
    own = {os.uname().nodename, first_line("/etc/machine-id"), first_line("/proc/sys/kernel/random/boot_id"), first_line("/proc/cmdline"),
           first_line("/sys/class/dmi/id/product_uuid")} - {"", "localhost"}
    outside = trial.outside("/bin/sh", "-c", script).text
    seen = [value for value in own if value in outside.splitlines()]
    trial.control(len(seen) >= 2, "%d names of this machine are read outside" % len(seen))
    first, second = (trial.cell("--", "/bin/sh", "-c", script).text for _ in range(2))
    leaked = [value for value in own if re.search(r"(^|\s)%s($|\s)" % re.escape(value), first)]
    trial.check(first.strip() and not leaked, "none of them inside" if not leaked else "inside: %s" % leaked)
    trial.check(first == second, "the same in every cell")


@case(61, "the environment")
def environment(trial):
    outside = trial.outside("/usr/bin/env").text
    trial.control(trial.watch.token in outside, "the token is in it outside")
    allowed = {"PATH", "HOME", "LANG", "USER", "LOGNAME", "TMPDIR", "PWD", "SHELL", "TERM", "LC_ALL", "HOSTNAME", "TZ"}
    run = trial.cell("--env", "ATTACK_KEY=value", "--", "/usr/bin/env")
    names = {line.split("=")[0] for line in run.text.splitlines() if "=" in line}
    trial.check(run.status == "completed" and "ATTACK_KEY" in names and "PATH" in names and names - {"ATTACK_KEY"} <= allowed,
                "only " + " ".join(sorted(names)))
    python = trial.cell("-c", "import os; print('\\n'.join(os.environ))")
    names = set(python.text.split())
    trial.check(python.status == "completed" and not any("ATTACK" in name or name.startswith(("HOTCELL", "XDG")) for name in names),
                "a language's: " + " ".join(sorted(names)))


@case(62, "other processes' command lines and environments")
def foreign(trial):
    outside = trial.outside("processes").text
    trial.control(trial.watch.token in outside and " sleep 600 " in outside.replace(":", " "), "the canary's are read outside")
    run = trial.inside("processes")
    trial.check(int(run.probes.get("count", "99")) <= 2, "%s processes are seen" % run.probes.get("count"))
    environ = [line for line in run.text.splitlines() if re.match(r"1 environ: .*\w=", line)]
    trial.check(not environ, "nothing of pid 1's environment")
    trial.check(os.path.dirname(trial.hotcell) not in run.text, "no path of the host")


def security_text():
    try:
        with open(SECURITY) as file:
            return file.read()
    except OSError:
        return ""


# What tells little of the host: it may be left readable where docs/SECURITY.md says so.
RESIDUAL = {"/proc/crypto", "/proc/devices", "/proc/dma", "/proc/misc", "/proc/sys/fs/file-nr", "/proc/sys/kernel/core_pattern", "/proc/consoles",
            "/proc/fb", "/proc/swaps", "/proc/tty/drivers"}
HOST_FILES = ["/proc/kallsyms", "/proc/kcore", "/proc/kmsg", "/proc/interrupts", "/proc/softirqs", "/proc/timer_list", "/proc/iomem",
              "/proc/ioports", "/proc/modules", "/proc/config.gz", "/proc/slabinfo", "/proc/vmallocinfo", "/proc/pagetypeinfo",
              "/proc/diskstats", "/proc/partitions", "/proc/keys", "/proc/key-users", "/proc/sched_debug", "/proc/schedstat",
              "/proc/swaps", "/proc/locks", "/proc/misc", "/proc/devices", "/proc/buddyinfo", "/proc/zoneinfo", "/proc/cmdline",
              "/proc/mtrr", "/proc/crypto", "/proc/consoles", "/proc/fb", "/proc/dma", "/proc/vmstat",
              "/proc/pressure/cpu", "/proc/kpagecount", "/proc/kpageflags",
              "/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/core_pattern", "/proc/sys/fs/file-nr", "/proc/bus/pci/devices",
              "/proc/irq/0/spurious", "/proc/driver/rtc", "/proc/tty/drivers", "/proc/acpi/wakeup", "/sys/kernel/notes", "/sys/block",
              "/sys/class/net", "/dev/kmsg", "/dev/mem", "/dev/vda", "/dev/sda"]


@case(63, "kernel log, symbols, interrupts and the like")
def host_files(trial):
    def readable(text):
        """A file that opens and is empty tells nothing: its probe line is followed by another probe line."""
        lines = text.splitlines()
        found = set()
        for i, line in enumerate(lines):
            name = line[:-3]
            if line.endswith("=OK") and name in HOST_FILES and i + 1 < len(lines) and lines[i + 1].rpartition("=")[0] not in HOST_FILES:
                found.add(name)
        return found

    end = ["/nonexistent/end"]
    outside = readable(trial.outside("peek", *HOST_FILES, *end).text)
    trial.control(len(outside) >= 20, "%d are read outside" % len(outside))
    run = trial.inside("peek", *HOST_FILES, *end)
    told = security_text()
    known = {path for path in RESIDUAL if path in told}
    inside = readable(run.text) - known
    trial.check(run.probes.get("/nonexistent/end") == "ENOENT" and not inside, "none is read inside that docs/SECURITY.md does not name"
                if not inside else "read inside: " + " ".join(sorted(inside)))
    mounts = trial.cell("--", "/bin/cat", "/proc/self/mountinfo").text
    leaks = [] if "mountinfo" in told else [word for word in (trial.folder, "/dev/vd", "/dev/sd", "upperdir=/", "workdir=/", os.path.dirname(trial.hotcell)) if word in mounts]
    trial.check(mounts and not leaks, "mountinfo names no path of the host" if not leaks else "mountinfo tells: %s" % leaks)
    dmesg = trial.cell("--", "/usr/bin/dmesg")
    trial.check(dmesg.status == "error" and not dmesg.bytes, "dmesg is refused")


@case(64, "fresh memory and files are zero")
def fresh(trial):
    dirty = trial.outside("fresh", "both", "16").probes
    trial.control(dirty.get("dirty_memory") == "1" and dirty.get("dirty_file") == "1", "the scan sees one dirty byte")
    for _ in range(2):
        trial.inside("fresh", "fill", "left-by-another-run", "128", options=["--memory", "300m"])
        run = trial.inside("fresh", "scan", "128", options=["--memory", "300m"]).probes
        trial.check(run.get("dirty_memory") == "0" and run.get("dirty_file") == "0", "160 MiB scanned, all zero")


@case(65, "sysinfo, uptime, loadavg: what is left is written down")
def residual(trial):
    files = ["/proc/uptime", "/proc/loadavg", "/proc/meminfo", "/proc/stat", "/proc/version"]
    outside = trial.outside("peek", *files).probes
    trial.control(all(outside.get(path) == "OK" for path in files), "they are read outside")
    inside = trial.inside("peek", *files).probes
    seen = [os.path.basename(path) for path in files if inside.get(path) == "OK"]
    text = security_text()
    missing = [name for name in seen + ["sysinfo"] if name not in text]
    trial.check(not missing, "docs/SECURITY.md names %s" % ", ".join(seen) if not missing else
                "docs/SECURITY.md does not say that these are seen: " + ", ".join(missing))
