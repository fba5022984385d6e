"""What sandboxes that nobody uses cost: their processes and control groups, as the kernel counts them.

They are told from cells that wait in the pool by a limit of memory that nothing else on the server has.
"""

import os
import re

CONTROLLERS = "/sys/fs/cgroup/cgroup.controllers"
MACHINE = ("SUnreclaim", "KernelStack", "PageTables", "Percpu", "Shmem")


def memory_group(pid):
    """The folder of the control group that the memory of a process is counted in."""
    with open(f"/proc/{pid}/cgroup", encoding="utf-8") as lines:
        places = {controllers: path for _, controllers, path in (line.rstrip("\n").split(":", 2) for line in lines)}
    if os.path.exists(CONTROLLERS):
        return "/sys/fs/cgroup" + places[""]
    path = next(path for controllers, path in places.items() if "memory" in controllers.split(","))
    return "/sys/fs/cgroup/memory" + path


def number_in(path):
    """The number in a file of the kernel's; None: there is none, or it says "max"."""
    try:
        with open(path, encoding="ascii") as source:
            return int(source.read())
    except (OSError, ValueError):
        return None


def limit_of(group):
    version_2 = number_in(f"{group}/memory.max")
    return version_2 if version_2 is not None else number_in(f"{group}/memory.limit_in_bytes")


def kernel_memory(group):
    """Bytes of the kernel's own memory that a group is charged for."""
    charged = number_in(f"{group}/memory.kmem.usage_in_bytes")
    if charged is not None:
        return charged
    with open(f"{group}/memory.stat", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("kernel "))


def group_with(pid, limit):
    """The group of a process, or one that it is in, that has this limit; None: it is another's."""
    try:
        group = memory_group(pid)
    except OSError:
        return None
    for _ in range(3):
        if limit_of(group) == limit:
            return group
        group = os.path.dirname(group)
    return None


def proportional(pid):
    """Bytes of memory (PSS) of a process."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as rollup:
        return int(re.search(r"^Pss:\s+(\d+) kB", rollup.read(), re.M)[1]) << 10


def cost(group, pids):
    """(PSS, charged kernel memory) of a sandbox, in bytes."""
    return sum(map(proportional, pids)), kernel_memory(group)


def sandboxes_with(pids, limit):
    """{group: [pid]} of the sandboxes that were asked for with this limit."""
    found = {}
    for pid in pids:
        if (group := group_with(pid, limit)) is not None:
            found.setdefault(group, []).append(pid)
    return found


def machine():
    """Bytes that the kernel has taken for itself and for files in memory, on the whole machine."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        sizes = {name: int(rest.split()[0]) for name, rest in (line.split(":", 1) for line in lines)}
    return sum(sizes[name] for name in MACHINE) << 10
