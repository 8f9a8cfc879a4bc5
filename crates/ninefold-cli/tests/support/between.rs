//! What stands between a command and its server: [`between`] takes connections, and a test carries what passes by them.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use super::meddler::Way;

/// An address behind which each connection, of which the first is number 0, leads to where `leads` says. `carry` takes what comes by it one way, from the first
/// socket to the second, on a thread of its own, and ends the second; [`pass`] does, where nothing is to happen.
pub fn between(
    leads: impl Fn(usize) -> SocketAddr + Send + 'static,
    carry: impl Fn(usize, Way, TcpStream, TcpStream) + Clone + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, near) in listener.incoming().enumerate() {
            let near = near.unwrap();
            let far = TcpStream::connect(leads(number)).unwrap();
            for way in [Way::ToServer, Way::ToClient] {
                let (near, far, carry) = (near.try_clone().unwrap(), far.try_clone().unwrap(), carry.clone());
                std::thread::spawn(move || match way {
                    Way::ToServer => carry(number, way, near, far),
                    Way::ToClient => carry(number, way, far, near),
                });
            }
        }
    });
    address
}

/// All that comes, until it ends.
pub fn pass(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}
