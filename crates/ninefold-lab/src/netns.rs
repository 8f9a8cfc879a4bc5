//! Network namespaces with a TUN device each: the two places that the link joins.
//!
//! A namespace belongs to a thread, so `Place::make` enters a new one on a thread of its own and brings back what keeps it:
//! descriptors. It goes when the last process in it and the last descriptor of it have gone.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::shape::End;
use crate::unavailable::unavailable;

/// The device's name, in both namespaces.
pub const DEVICE: &str = "lab0";

/// The prefix of the network that both ends are in.
const PREFIX: u8 = 24;

/// Packets that the kernel keeps until the link has taken them. It must hold what all connections send at one go, or the kernel
/// drops what the link never saw: 64 Ki packets of 1500 bytes are 23 windows of 4 MiB, Linux's greatest by default (tcp_wmem).
const DEVICE_QUEUE_PACKETS: u32 = 65_536;

/// Where new namespaces have the loopback device: it is always made first.
const LOOPBACK: u32 = 1;

impl End {
    pub fn address(self) -> Ipv4Addr {
        match self {
            End::Client => Ipv4Addr::new(10, 9, 0, 1),
            End::Server => Ipv4Addr::new(10, 9, 0, 2),
        }
    }
}

/// One end's namespace.
pub struct Place {
    pub namespace: OwnedFd,
    pub device: Arc<SyncDevice>,
    /// /proc/net/dev of that namespace.
    counters: File,
}

impl Place {
    /// Makes a namespace with loopback and a device that holds the end's address, both up.
    pub fn make(end: End, mtu: u16) -> Result<Place> {
        let thread = std::thread::Builder::new().name(format!("make {end:?}")).spawn(move || Place::here(end, mtu))?;
        thread.join().map_err(|_| anyhow!("the thread that makes a namespace panicked"))?
    }

    fn here(end: End, mtu: u16) -> Result<Place> {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|e| match e {
            Errno::EPERM => unavailable(
                "this system lets user namespaces be made, but no network namespace in them; on Ubuntu: \
                 sysctl kernel.apparmor_restrict_unprivileged_userns=0, or run as root",
            ),
            Errno::ENOSPC => {
                unavailable("no further network namespace is allowed: raise /proc/sys/user/max_net_namespaces")
            }
            e => anyhow!("cannot make a network namespace: {e}"),
        })?;
        let namespace =
            File::open("/proc/thread-self/ns/net").context("/proc/thread-self/ns/net: is /proc mounted?")?.into();
        let counters = File::open("/proc/thread-self/net/dev").context("/proc/thread-self/net/dev")?;
        let device = device(mtu)?;
        let index = device.if_index().with_context(|| format!("index of {DEVICE}"))?;
        let mut route = Route::open()?;
        route.up(LOOPBACK).context("cannot bring up the loopback device")?;
        // Not by SIOCSIFTXQLEN, which no user namespace's root may use.
        route.queue(index, DEVICE_QUEUE_PACKETS).with_context(|| format!("cannot set the queue of {DEVICE}"))?;
        route.address(index, end.address()).with_context(|| format!("cannot give {DEVICE} its address"))?;
        route.up(index).with_context(|| format!("cannot bring up {DEVICE}"))?;
        Ok(Place { namespace, device: Arc::new(device), counters })
    }

    /// Packets that the kernel dropped because the link did not take them in time.
    pub fn missed(&self) -> Result<u64> {
        let mut text = vec![0; 4096]; // Two devices, a line each.
        let length = self.counters.read_at(&mut text, 0).context("/proc/net/dev of an end")?;
        missed(&String::from_utf8_lossy(&text[..length])).context("/proc/net/dev has no line of the device")
    }
}

/// The fourth figure of what a device transmits, in /proc/net/dev: proc_pid_net(5).
fn missed(text: &str) -> Option<u64> {
    /// Eight figures of what is received stand in front of the packets, bytes, errors and drops of what is sent.
    const DROPPED: usize = 8 + 3;
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(DEVICE)?.strip_prefix(':'))?;
    line.split_whitespace().nth(DROPPED)?.parse().ok()
}

fn device(mtu: u16) -> Result<SyncDevice> {
    const MISSING: &str =
        "/dev/net/tun is missing: as root, modprobe tun; a container is given it by --device /dev/net/tun";
    // tun-rs would make it, for root, and it would stay.
    if !Path::new("/dev/net/tun").exists() {
        return Err(unavailable(MISSING));
    }
    let made = DeviceBuilder::new().name(DEVICE).mtu(mtu).enable(false).build_sync();
    let device = made.map_err(|e| match e.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT | Errno::ENODEV | Errno::ENXIO) => unavailable(MISSING),
        Some(Errno::EACCES) => {
            unavailable("/dev/net/tun may not be opened: as root, chmod 666 /dev/net/tun, as udev has it")
        }
        Some(Errno::EPERM) => unavailable("no TUN device may be made here: run as root, or outside of the container"),
        _ => anyhow!("cannot make a TUN device: {e}"),
    })?;
    device.set_nonblocking(true).context("TUN device")?;
    Ok(device)
}

/// Requests to the kernel about devices: rtnetlink(7).
struct Route {
    socket: Socket,
}

impl Route {
    fn open() -> Result<Route> {
        let socket = Socket::new(NETLINK_ROUTE).context("netlink socket")?;
        socket.connect(&SocketAddr::new(0, 0)).context("netlink socket")?;
        Ok(Route { socket })
    }

    fn up(&mut self, index: u32) -> Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        self.ask(RouteNetlinkMessage::SetLink(link), 0)
    }

    fn queue(&mut self, index: u32, packets: u32) -> Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes = vec![LinkAttribute::TxQueueLen(packets)];
        self.ask(RouteNetlinkMessage::SetLink(link), 0)
    }

    fn address(&mut self, index: u32, address: Ipv4Addr) -> Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = PREFIX;
        message.header.index = index;
        message.attributes = vec![AddressAttribute::Local(address.into()), AddressAttribute::Address(address.into())];
        self.ask(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    fn ask(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let (reply, _) = self.socket.recv_from_full()?;
        match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&reply)?.payload {
            NetlinkPayload::Error(error) => error.code.map_or(Ok(()), |_| Err(error.to_io().into())),
            other => bail!("netlink answers {other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drops_of_the_device_are_read_from_the_kernels_table() {
        let table = "Inter-|   Receive                                                |  Transmit\n \
             face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
             lo:       0       0    0    0    0     0          0         0        0       0    0    9    0     0       0          0\n  \
             lab0:     152       2    0    3    0     0          0         0      152       2    0   17    0     0       0          0\n";
        assert_eq!(missed(table), Some(17));
        assert_eq!(missed("lo: 1 2 3"), None);
    }
}
