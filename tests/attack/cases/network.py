"""Network: 53–59."""

import socket
import subprocess
import time

from suite import case


@case(53, "connect to a loopback port of the host")
def loopback(trial):
    watch = trial.watch
    doors = ["four=tcp:127.0.0.1:%d" % watch.tcp.getsockname()[1], "zero=tcp:0.0.0.0:%d" % watch.tcp.getsockname()[1],
             "udp=udp:127.0.0.1:%d" % watch.udp.getsockname()[1]]
    if watch.tcp6:
        doors.append("six=tcp:::1:%d" % watch.tcp6.getsockname()[1])
    outside = trial.outside("network", *doors)
    trial.control(watch.contacts() >= 3, "the sinks are reached outside")
    inside = trial.inside("network", *doors)
    # A datagram on the cell's own loopback leaves without an error and arrives nowhere: the sinks are the judge of that.
    trial.doors(inside.probes, outside.probes, allowed=["udp"])
    trial.check(watch.contacts() == 0, "the sinks are silent")


@case(54, "metadata address, LAN, DNS")
def metadata(trial):
    watch = trial.watch
    stand_in = trial.outside("network", "--own-lo", "169.254.169.254", "meta=tcp:169.254.169.254:80", "dns=udp:169.254.169.254:53",
                             wrap=["unshare", "-n"])
    trial.control(stand_in.probes.get("meta") == "OK" and stand_in.probes.get("dns") == "OK", "reached where there is a network")
    doors = ["meta=tcp:169.254.169.254:80", "dns=udp:8.8.8.8:53", "dns_tcp=tcp:1.1.1.1:53", "resolver=udp:127.0.0.53:53",
             "documentation=tcp:192.0.2.1:80", "broadcast=udp:255.255.255.255:9", "multicast=udp:224.0.0.251:5353",
             "six=tcp:2001:4860:4860::8888:53", "link=udp:ff02::1:9"]
    address = watch.lan()
    if address:
        lan = ["lan=tcp:%s:%d" % (address, watch.tcp.getsockname()[1]), "lan_udp=udp:%s:%d" % (address, watch.udp.getsockname()[1])]
        trial.outside("network", *lan)
        trial.control(watch.contacts() == 2, "the LAN address is reached outside")
        doors += lan
    inside = trial.inside("network", *doors).probes
    opened = [name for name, value in inside.items() if value == "OK" and name != "resolver"]
    trial.check(len(inside) == len(doors) and not opened, "all refused (%s)" % ", ".join(sorted(set(inside.values())))
                if not opened else "open: " + " ".join(opened))
    trial.check(watch.contacts() == 0, "the sinks are silent")


@case(55, "the host's abstract and path sockets")
def local(trial):
    watch = trial.watch
    doors = ["abstract=abstract:" + watch.abstract_name, "path=path:" + watch.path]
    outside = trial.outside("network", *doors)
    trial.control(watch.contacts() == 2, "both are reached outside")
    inside = trial.inside("network", *doors)
    trial.doors(inside.probes, outside.probes)


@case(56, "raw, packet and netlink sockets")
def raw(trial):
    outside = trial.outside("sockets")
    inside = trial.inside("sockets")
    trial.doors(inside.probes, outside.probes, names=["raw_icmp", "raw_ip", "raw_icmp6", "packet", "netlink_route", "netlink_audit",
                                                      "netlink_uevent"])


def reachable(port, name):
    reached = []
    for family, address in ((socket.AF_INET, ("127.0.0.1", port)), (socket.AF_INET6, ("::1", port)), (socket.AF_UNIX, "\0" + name)):
        with socket.socket(family) as client:
            client.settimeout(0.5)
            try:
                client.connect(address)
                reached.append(str(address))
            except OSError:
                pass
    return reached


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@case(57, "the guest listens; host and peer connect")
def listening(trial):
    port, name = free_port(), trial.watch.abstract_name + "-guest"
    process = subprocess.Popen([trial.program("listen"), str(port), name, "1000"], stdout=subprocess.PIPE)
    most = []
    while len(most) < 2 and process.poll() is None:
        most = max(most, reachable(port, name), key=len)
        time.sleep(0.02)
    trial.control(len(most) >= 2, "reached outside")
    process.communicate()
    guest = trial.start("--", "./listen", str(port), name, "1500", files=["listen"])
    reached, end = [], time.monotonic() + 1.2  # again and again, so that it does not matter when it begins to listen
    while time.monotonic() < end and guest.poll() is None:
        reached += reachable(port, name)
        time.sleep(0.05)
    peer = trial.inside("network", "tcp=tcp:127.0.0.1:%d" % port, "abstract=abstract:" + name)
    run = trial.finish(guest)
    trial.check(run.probes.get("bind_tcp") == "OK" and run.probes.get("accepted") == "0" and not reached,
                "it may listen, the host does not reach it" if not reached else "reached: %s" % reached)
    trial.check(peer.probes.get("tcp") == "ECONNREFUSED" and peer.probes.get("abstract") == "ECONNREFUSED", "nor does a peer")


@case(58, "UDP and ICMP with network none")
def datagrams(trial):
    watch = trial.watch
    address = watch.lan() or "127.0.0.1"
    doors = ["icmp=icmp:" + address, "udp=udp:%s:%d" % (address, watch.udp.getsockname()[1])]
    outside = trial.outside("network", *doors)
    trial.control(outside.probes.get("icmp") == "OK" and watch.contacts() == 1, "both leave outside")
    inside = trial.inside("network", *doors)
    trial.check(inside.probes.get("icmp", "OK") != "OK", "ICMP: %s" % inside.probes.get("icmp"))
    trial.check(watch.contacts() == 0, "UDP arrives nowhere (%s)" % inside.probes.get("udp"))


@case(59, "vsock to the hypervisor")
def vsock(trial):
    outside = trial.outside("network", "vsock=vsock:2:1")
    inside = trial.inside("network", "vsock=vsock:2:1")
    trial.doors(inside.probes, outside.probes)
