"""Kernel surface and privileges: 22–36."""

import os
import re
import signal

from suite import SLOW, case

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "..", "..", "..", "src", "kernel", "syscalls.h")
NAMESPACES = ("mnt", "uts", "ipc", "user", "pid", "net", "cgroup")


def namespace_words():
    return ["%s=%s" % (kind, os.readlink("/proc/self/ns/" + kind)) for kind in NAMESPACES]


def group(trial, name, names, expect=None, wrap=()):
    outside = trial.outside("calls", name, wrap=wrap)
    inside = trial.inside("calls", name)
    trial.doors(inside.probes, outside.probes, names=names, expect=expect)


@case(22, "io_uring_setup")
def io_uring(trial):
    group(trial, "surface", ["io_uring_setup", "io_uring_setup_nosqarray", "io_uring_register"], ("EPERM", "ENOSYS"))


@case(23, "bpf, perf_event_open, userfaultfd")
def surface(trial):
    group(trial, "surface", ["bpf", "perf_event_open", "userfaultfd", "userfaultfd_user"], ("EPERM", "ENOSYS"))


@case(24, "keyctl, add_key, request_key")
def keys(trial):
    group(trial, "keys", None, ("EPERM", "ENOSYS"))


@case(25, "read and write a sibling's memory")
def sibling(trial):
    flipped = "".join(chr(ord(letter) ^ 1) for letter in trial.watch.token)
    outside = trial.outside("sibling", trial.watch.token)
    trial.control(flipped in outside.text, "the sibling's secret is read outside")
    inside = trial.inside("sibling", "not-the-secret")
    trial.doors(inside.probes, outside.probes, names=["process_vm_readv", "process_vm_writev", "ptrace_seize", "pidfd_getfd"])
    trial.check("onu,uid,rdbsdu" not in inside.text, "memory not read")


@case(26, "kexec, modules, reboot, swap, acct, iopl")
def machine(trial):
    group(trial, "machine", ["kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot", "swapon",
                             "swapoff", "acct", "quotactl", "iopl", "ioperm", "open_by_handle_at"], ("EPERM", "ENOSYS"))


@case(27, "socket() families 0–45")
def families(trial):
    outside = trial.outside("sockets").probes.get("families", "")
    inside = trial.inside("sockets").probes.get("families", "?")
    allowed = {1, 2, 10}
    opened = {int(word.split(":")[0]) for word in outside.split()}
    trial.control(opened - allowed, "open outside: %s" % sorted(opened))
    found = {int(word.split(":")[0]) for word in inside.split()} if inside != "?" else {-1}
    trial.check(found == allowed, "only AF_UNIX, AF_INET, AF_INET6" if found == allowed else "open inside: %s" % sorted(found))
    raw = [word for word in inside.split() if word.split(":")[0] in ("2", "10") and re.search(r"[:,](3|10)\b", word)]
    trial.check(not raw, "no raw type")


@case(28, "int 0x80 and x32 system call numbers")
def foreign(trial):
    outside = trial.outside("foreign", "int80")
    trial.control(outside.probes.get("answer") == "pid", "int 0x80 answers outside")
    inside = trial.inside("foreign", "int80")
    trial.check(inside.status == "error" and inside.result.get("signal") == signal.SIGSYS and inside.code == 128 + signal.SIGSYS,
                "int 0x80: ended by SIGSYS" if inside.result and inside.result.get("signal") == signal.SIGSYS else "int 0x80: %s" % inside)
    x32 = trial.inside("foreign", "x32")
    ended = x32.result and x32.result.get("signal") == signal.SIGSYS
    trial.check(ended or x32.probes.get("answer") == "ENOSYS", "x32: %s" % ("ended by SIGSYS" if ended else x32.probes.get("answer")))


@case(29, "personality bits")
def personality(trial):
    group(trial, "bits", None, ("EPERM",))


def allow_list():
    """src/kernel/syscalls.h as {name: what a call with zero arguments gives}: None means that the filter lets it through."""
    rules, only = {}, {}
    with open(TABLE) as file:
        for line in file:
            found = re.match(r"\s*([A-Z_]+)\((\w+)(?:,\s*([^)]*))?\)", line)
            if not found:
                continue
            kind, name, rest = found.groups()
            words = [word.strip() for word in (rest or "").split(",")]
            if kind == "ALLOW":
                rules[name] = None
            elif kind in ("DENY", "REPORT"):
                rules[name] = words[0] or "EPERM"
            elif kind in ("DENY_MASK", "REPORT_MASK", "DENY_CREATE"):
                rules[name] = None  # zero has no bit of any mask
            elif kind in ("DENY_EQ", "REPORT_EQ", "TELL_EQ"):
                rules.setdefault(name, None)
                if int(words[1], 0) == 0:
                    rules[name] = words[2]
            elif kind == "ONLY_EQ":
                only.setdefault(name, (set(), words[2]))[0].add(int(words[1], 0))
    for name, (values, error) in only.items():
        rules[name] = None if 0 in values else error
    return rules


def call_names():
    """Numbers to names of this architecture, from the C library's headers."""
    names = {}
    for folder in ("/usr/include/x86_64-linux-gnu/asm", "/usr/include/asm"):
        try:
            with open(folder + "/unistd_64.h") as file:
                for line in file:
                    found = re.match(r"#define __NR_(\w+)\s+(\d+)", line)
                    if found:
                        names[int(found.group(2))] = found.group(1)
            break
        except OSError:
            pass
    return names


# uretprobe and uprobe: newer kernels let them past every filter, and answer only in the trampoline that the kernel itself made.
UPROBES = (335, 336)


@case(30, "system calls 0–600 with zero arguments")
def every_call(trial):
    rules, names = allow_list(), call_names()
    outside = trial.outside("syscalls", wrap=["unshare", "-U", "-r", "-m", "-u", "-i", "-n", "-p", "-f", "-C"], env={"PATIENCE": str(int(SLOW))}, seconds=30 * SLOW).probes
    inside = trial.inside("syscalls", options=["--timeout", str(30 * SLOW), "--env", "PATIENCE=%d" % SLOW], seconds=40 * SLOW).probes
    trial.need(len(inside) == 601, "601 calls were tried: %d" % len(inside))
    wrong, changed = [], 0
    for number in range(601):
        name = names.get(number)
        if number in UPROBES and inside[str(number)] in ("SIG4", "ENXIO", "ENOSYS"):
            continue
        expected = rules.get(name, "ENOSYS") if name else "ENOSYS"
        seen = inside[str(number)]
        if expected is None:  # allowed: whatever the kernel itself says, but not as the filter would say no to an unknown call
            if seen == "ENOSYS" and outside.get(str(number)) != "ENOSYS":
                wrong.append("%s (%d) is allowed, and ENOSYS was seen" % (name, number))
        elif seen != expected:
            wrong.append("%s (%d) should be %s, and %s was seen" % (name, number, expected, seen))
        elif outside.get(str(number)) != seen:
            changed += 1
    trial.control(changed >= 20, "%d of the refused calls answer otherwise outside" % changed)
    trial.check(not wrong, "%d allowed, %d refused, as in the table" % (sum(1 for rule in rules.values() if rule is None),
                601 - sum(1 for rule in rules.values() if rule is None)) if not wrong else "; ".join(wrong[:5]))


@case(31, "fanotify, quotactl, syslog")
def watching(trial):
    group(trial, "watching", None, ("EPERM", "ENOSYS"))


@case(32, "set the clock, the host's name")
def clocks(trial):
    outside = trial.outside("calls", "clocks", wrap=["unshare", "-u"])
    inside = trial.inside("calls", "clocks", "inside")
    trial.doors(inside.probes, outside.probes)
    trial.check(all(inside.probes.get(name) == "EPERM" for name in ("clock_settime", "settimeofday")), "clock_settime, settimeofday: EPERM")


@case(33, "/proc/self/status: sealed from within")
def status(trial):
    outside = trial.outside("sealed", *namespace_words())
    opened = [name for name, value in outside.probes.items() if value.startswith("OPEN")]
    trial.control(len(opened) >= 30, "%d seals are open outside" % len(opened))
    inside = trial.inside("sealed", *namespace_words())
    opened = ["%s %s" % (name, value) for name, value in inside.probes.items() if value.startswith("OPEN")]
    trial.check(inside.probes.get("verdict") == "seen" and not opened, "%d seals hold" % (len(inside.probes) - 1)
                if not opened else "; ".join(opened[:6]))


@case(34, "setuid(0), setgroups, capset, su")
def identity(trial):
    outside = trial.outside("identity")
    inside = trial.inside("identity")
    trial.doors(inside.probes, outside.probes, names=["setuid", "setgid", "setresuid", "setuid_other", "setgroups", "setfsuid", "capset",
                                                      "ambient", "securebits"])
    su = trial.cell("--timeout", "5", "--", "/usr/bin/su", "-c", "id -u")
    trial.check(su.text.strip() != "0" and su.status != "completed", "su is refused")


@case(35, "raise limits and priority; oom_score_adj")
def limits(trial):
    outside = trial.outside("identity")
    inside = trial.inside("identity")
    trial.doors(inside.probes, outside.probes, names=["nofile", "core", "fsize", "memlock", "rtprio", "oom_score_adj", "realtime", "nice"])


KNOBS = ["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches",
         "/proc/sys/kernel/modprobe", "/proc/sys/fs/binfmt_misc/register", "/proc/sys/net/ipv4/ip_forward", "/proc/irq/0/smp_affinity",
         "/proc/acpi/wakeup", "/proc/sys/kernel/randomize_va_space", "/sys/kernel/uevent_helper", "/sys/power/state",
         "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/cgroup.procs",
         "/proc/1/oom_score_adj", "/proc/1/setgroups", "/proc/1/uid_map", "/proc/self/uid_map", "/proc/self/gid_map"]


@case(36, "core_pattern, sysrq-trigger, /sys")
def knobs(trial):
    outside = trial.outside("knobs", *KNOBS)
    inside = trial.inside("knobs", *KNOBS)
    # The maps may be opened by anyone; what was written once is not written again.
    trial.doors(inside.probes, outside.probes, allowed=["/proc/self/uid_map", "/proc/self/gid_map"])
    again = trial.cell("--", "/bin/sh", "-c", 'echo "0 0 1" > /proc/self/uid_map && echo written')
    trial.check("written" not in again.text, "the uid map is fixed")
