//! A relay that changes what passes through it, or does not let it pass: a hostile server, a disk that forgets, a server
//! that hangs at the moment that a test needs.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Which way a frame goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    ToServer,
    ToClient,
}

/// What is done to a frame: changed in place, and passed on if the answer is `true`.
type Meddle = dyn FnMut(Way, &mut Vec<u8>) -> bool + Send;

/// The numbers of some messages.
pub const TREAD: u8 = 116;
pub const TWRITE: u8 = 118;
pub const TRENAMEAT: u8 = 74;
pub const TWSTAT: u8 = 126;
pub const RREAD: u8 = 117;
pub const RREADDIR: u8 = 41;
pub const RREADDIRPLUS: u8 = 173;
pub const RGETATTR: u8 = 25;

/// The type of a frame.
pub fn kind(frame: &[u8]) -> u8 {
    frame[4]
}

/// The offset of a Tread or Twrite: `size[4] Twrite tag[2] fid[4] offset[8]`.
pub fn write_offset(frame: &[u8]) -> u64 {
    u64::from_le_bytes(frame[11..19].try_into().unwrap())
}

/// Puts one text for another of the same length wherever it stands.
pub fn replace(frame: &mut [u8], old: &[u8], new: &[u8]) {
    assert_eq!(old.len(), new.len());
    for at in 0..=frame.len().saturating_sub(old.len()) {
        if frame[at..].starts_with(old) {
            frame[at..at + old.len()].copy_from_slice(new);
        }
    }
}

/// The address of a relay to `server`. It lives as long as the test.
pub fn meddle(server: SocketAddr, meddle: impl FnMut(Way, &mut Vec<u8>) -> bool + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let meddle: Arc<Mutex<Meddle>> = Arc::new(Mutex::new(meddle));
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(server) else { return };
            let (to_server, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            let (there, back) = (meddle.clone(), meddle.clone());
            std::thread::spawn(move || carry(client, to_server, Way::ToServer, &there));
            std::thread::spawn(move || carry(server, to_client, Way::ToClient, &back));
        }
    });
    address
}

fn carry(mut from: TcpStream, mut to: TcpStream, way: Way, meddle: &Mutex<Meddle>) {
    let mut size = [0; 4];
    while from.read_exact(&mut size).is_ok() {
        let mut frame = vec![0; u32::from_le_bytes(size) as usize];
        frame[..4].copy_from_slice(&size);
        if from.read_exact(&mut frame[4..]).is_err() {
            break;
        }
        if meddle.lock().unwrap()(way, &mut frame) && to.write_all(&frame).is_err() {
            break;
        }
    }
    // The end too is passed on.
    let _ = to.shutdown(Shutdown::Write);
}
