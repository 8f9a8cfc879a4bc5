//! How two ends of a pair of sockets find out that both know rings, without a byte that a program would see that knows none.
//!
//! Who reads gives its socket a name that says so (an abstract one, unix(7)), which the other end sees by getpeername(2). Who writes and
//! sees it sends an offer: a byte with two descriptors, the ring's memory and the reader's end of its life line. The bytes before the
//! offer are the stream's, and what follows it is in the ring, until the ring is closed.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrAny, SocketAddrUnix, SocketType, sockopt,
};

/// The name, of this form of rings; random digits follow.
const NAME: &[u8] = b"ninefold-ring-1-";

/// What an offer has besides its descriptors.
const OFFER: u8 = 0;

/// Is it an end of a connection between processes, in which bytes come in order?
pub fn is_socket(fd: BorrowedFd<'_>) -> bool {
    sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX) && sockopt::socket_type(fd) == Ok(SocketType::STREAM)
}

fn is_ours(address: SocketAddrAny) -> bool {
    SocketAddrUnix::try_from(address).is_ok_and(|unix| unix.abstract_name().is_some_and(|name| name.starts_with(NAME)))
}

/// Says that who reads here takes offers. A socket that has a name already, as those have that accept(2) gives, cannot say so: then no
/// ring is offered to it.
pub fn announce(fd: BorrowedFd<'_>) {
    let mut random = [0; 16];
    if rustix::net::getsockname(fd).is_ok_and(is_ours)
        || rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty()) != Ok(random.len())
    {
        return;
    }
    let mut name = NAME.to_vec();
    name.extend(random.iter().map(|byte| b'a' + byte % 16));
    if let Ok(name) = SocketAddrUnix::new_abstract_name(&name) {
        let _ = rustix::net::bind(fd, &name);
    }
}

/// Has the other end said so?
pub fn is_announced(fd: BorrowedFd<'_>) -> bool {
    rustix::net::getpeername(fd).is_ok_and(|address| address.is_some_and(is_ours))
}

/// Sends an offer, and does not wait.
///
/// # Errors
/// Those of sendmsg(2).
pub fn offer(fd: BorrowedFd<'_>, memory: &OwnedFd, line: &OwnedFd) -> Result<(), Errno> {
    let both = [memory.as_fd(), line.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&both)) {
        return Err(Errno::NOBUFS);
    }
    rustix::net::sendmsg(fd, &[IoSlice::new(&[OFFER])], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
        .map(|_| ())
}

/// What came by the sockets.
pub enum Received {
    /// So many bytes of the stream; none at its end.
    Bytes(usize),
    /// Behind so many bytes of the stream the memory and the line; the offer's byte is behind them in the buffer.
    Offer(usize, OwnedFd, OwnedFd),
    /// Behind so many bytes of the stream an offer whose descriptors this process has no room for. They are gone.
    Lost(usize),
}

/// Reads what is there, at most up to an offer, and does not wait.
///
/// # Errors
/// Those of recvmsg(2).
pub fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let message = rustix::net::recvmsg(fd, &mut [IoSliceMut::new(buffer)], &mut control, flags)?;
    let n = message.bytes;
    let mut fds: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if n == 0 || buffer[n - 1] != OFFER {
        return Ok(Received::Bytes(n));
    }
    // The kernel gives as many as there is room for, and says that there were more.
    if fds.len() < 2 && message.flags.contains(ReturnFlags::CTRUNC) {
        return Ok(Received::Lost(n - 1));
    }
    match <[OwnedFd; 2]>::try_from(fds) {
        Ok([memory, line]) => Ok(Received::Offer(n - 1, memory, line)),
        Err(_) => Ok(Received::Bytes(n)),
    }
}
