//! TCP: sockets set up the way 9P wants them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::{Peer, standard};

/// Silence on a connection before the kernel asks whether the peer is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// Between two such questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Unanswered questions that end the connection: a dead peer's fids and locks are held for two minutes at most.
const KEEPALIVE_COUNT: u32 = 4;

/// Binds to the first of the host's addresses that can be bound.
pub(super) async fn bind(host: &str, port: u16) -> io::Result<TcpListener> {
    // tokio sets SO_REUSEADDR, so that a restarted server gets its port back at once.
    let listener = TcpListener::bind((host, port)).await?;
    // What is accepted of it has all that from the beginning.
    set_up(&listener)?;
    if is_here(listener.local_addr()?.ip()) {
        do_not_pace(&listener);
    }
    Ok(listener)
}

/// Connects to the first of the host's addresses that answers; `begins` is told the first of them before it is tried.
pub(super) async fn dial(host: &str, port: u16, begins: impl FnOnce(SocketAddr)) -> io::Result<TcpStream> {
    // The resolver's errors have no number: nothing leads there.
    let unknown = |e: io::Error| match e.raw_os_error() {
        Some(_) => e,
        None => io::Error::new(io::ErrorKind::HostUnreachable, e.to_string()),
    };
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await.map_err(unknown)?.collect();
    let mut failed = io::Error::new(io::ErrorKind::HostUnreachable, "the host has no address");
    if let Some(first) = addresses.first() {
        begins(*first);
    }
    for address in addresses {
        match connect(address).await {
            Ok(stream) => {
                set_up(&stream)?;
                return Ok(stream);
            }
            Err(e) => failed = e,
        }
    }
    Err(failed)
}

/// Connects to one address.
pub(crate) async fn dial_address(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = connect(address).await?;
    set_up(&stream)?;
    Ok(stream)
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = standard::beyond(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?)?;
    if is_here(address.ip()) {
        do_not_pace(&socket);
    }
    TcpSocket::from_std_stream(socket.into()).connect(address).await
}

/// A stream just accepted. Fails when the peer is gone already.
pub(super) fn accepted(stream: TcpStream, peer: SocketAddr) -> io::Result<(TcpStream, Peer)> {
    // Of a listener of ours Linux hands it on, for which each would take five calls. Somebody else's may have none.
    if !stream.nodelay()? {
        set_up(&stream)?;
    }
    let local = stream.local_addr()?;
    if is_here(local.ip()) {
        do_not_pace(&stream);
    }
    Ok((stream, Peer::Tcp { peer, local, tls: false }))
}

/// Sets up a stream that is there, or the listener of those that are to come.
pub(crate) fn set_up(socket: impl AsFd) -> io::Result<()> {
    // Replies leave in whole gathered writes: holding back the last segment only adds delay.
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_COUNT)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    Ok(())
}

/// Whether who is met at this address is on this machine.
pub(super) fn is_here(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Whether what this machine sends far away goes at the rate that the way turns out to have, whatever is lost on it: by BBR.
pub(crate) fn finds_the_rate() -> bool {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    socket.is_ok_and(|socket| sockopt::tcp_congestion(&socket).is_ok_and(|name| name.starts_with("bbr")))
}

/// BBR sends at a measured pace, which keeps queues on the way short. Within a machine there is none, and the timers of the pace are a third of
/// what sending costs (docs/bench.md, "loopback"). A socket that has another congestion control, or may have no other, keeps its own: it works as well. On a
/// listener, or before it is connected, it is as if BBR had never been; later its pacing goes on, at the rate that another one gives it.
fn do_not_pace(socket: impl AsFd) {
    if sockopt::tcp_congestion(&socket).is_ok_and(|name| name.starts_with("bbr")) {
        let _ = ["cubic", "reno"].iter().any(|name| sockopt::set_tcp_congestion(&socket, name).is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(socket: impl AsFd) -> String {
        sockopt::tcp_congestion(socket).unwrap()
    }

    #[tokio::test]
    async fn what_is_accepted_is_set_up_by_its_listener_or_behind_it() {
        let ours = bind("127.0.0.1", 0).await.unwrap();
        let elses = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut sockets = Vec::new();
        for (listener, is_ours) in [(&ours, true), (&elses, false)] {
            let (near, far) = tokio::join!(dial_address(listener.local_addr().unwrap()), listener.accept());
            let (far, peer) = far.unwrap();
            assert_eq!(far.nodelay().unwrap(), is_ours);
            sockets.extend([near.unwrap(), accepted(far, peer).unwrap().0]);
        }
        for socket in sockets {
            assert!(sockopt::tcp_nodelay(&socket).unwrap() && sockopt::socket_keepalive(&socket).unwrap());
            assert_eq!(sockopt::tcp_keepidle(&socket).unwrap(), KEEPALIVE_IDLE);
            assert_eq!(sockopt::tcp_keepintvl(&socket).unwrap(), KEEPALIVE_INTERVAL);
            assert_eq!(sockopt::tcp_keepcnt(&socket).unwrap(), KEEPALIVE_COUNT);
        }
    }

    #[tokio::test]
    async fn within_a_machine_nothing_is_paced() {
        let listener = bind("127.0.0.1", 0).await.unwrap();
        let address = listener.local_addr().unwrap();
        assert!(!control(&listener).starts_with("bbr"));
        let (near, far) = tokio::join!(dial_address(address), listener.accept());
        let (far, peer) = far.unwrap();
        assert!(!control(near.unwrap()).starts_with("bbr"));
        assert!(!control(&accepted(far, peer).unwrap().0).starts_with("bbr"));
        // A listener for all addresses has the machine's, and what comes to it from here has not.
        let all = bind("0.0.0.0", 0).await.unwrap();
        if sockopt::set_tcp_congestion(&all, "bbr").is_err() {
            return; // this machine has none
        }
        let address = SocketAddr::from(([127, 0, 0, 1], all.local_addr().unwrap().port()));
        let (_near, far) = tokio::join!(dial_address(address), all.accept());
        let (far, peer) = far.unwrap();
        assert_eq!((control(&all), control(&far)), ("bbr".to_owned(), "bbr".to_owned()));
        assert!(!control(&accepted(far, peer).unwrap().0).starts_with("bbr"));
    }
}
