//! TCP connections as one direction of the link sees them, so that any of them can be reset.
//!
//! A receiver believes a RST whose number is exactly the next it expects, and answers any other with an ACK that says which that is
//! (RFC 5961, section 3.2). So a direction remembers how far each connection got: what its sender acknowledged, and what was
//! handed to its receiver. From both directions `resets` makes the segments for both ends. Where they are wrong nonetheless, the
//! ACK that the end answers passes here, and `resent` makes the right one of it. Until a connection is opened anew, what its
//! ends send is answered like that.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use etherparse::{IpNumber, Ipv4HeaderSlice, PacketBuilder, TcpHeaderSlice};
use serde::{Deserialize, Serialize};

/// Connections remembered in each direction. Beyond it those seen longest ago are forgotten, and cannot be reset.
pub const FLOWS_MAX: usize = 65_536;

/// Hops that an injected segment may take: it takes none.
const TIME_TO_LIVE: u8 = 64;

/// The addresses and ports of a direction's segments.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Flow {
    pub from: SocketAddrV4,
    pub to: SocketAddrV4,
}

impl Flow {
    /// The same connection in the other direction.
    pub fn back(self) -> Flow {
        Flow { from: self.to, to: self.from }
    }

    pub fn has_port(self, port: u16) -> bool {
        self.from.port() == port || self.to.port() == port
    }
}

/// What matters of a TCP segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    pub flow: Flow,
    /// The number behind its last byte; SYN and FIN count as one.
    pub end: u32,
    pub ack: Option<u32>,
    syn: bool,
    fin: bool,
    rst: bool,
}

impl Segment {
    /// Of an IPv4 packet; none where it holds no TCP header, as behind the first fragment.
    pub fn of(packet: &[u8]) -> Option<Segment> {
        let ip = Ipv4HeaderSlice::from_slice(packet).ok()?;
        if ip.protocol() != IpNumber::TCP || ip.fragments_offset().value() != 0 {
            return None;
        }
        let payload = packet.get(ip.slice().len()..usize::from(ip.total_len()))?;
        let tcp = TcpHeaderSlice::from_slice(payload).ok()?;
        let length = (payload.len() - tcp.slice().len()) as u32 + u32::from(tcp.syn()) + u32::from(tcp.fin());
        Some(Segment {
            flow: Flow {
                from: SocketAddrV4::new(ip.source_addr(), tcp.source_port()),
                to: SocketAddrV4::new(ip.destination_addr(), tcp.destination_port()),
            },
            end: tcp.sequence_number().wrapping_add(length),
            ack: tcp.ack().then(|| tcp.acknowledgment_number()),
            syn: tcp.syn(),
            fin: tcp.fin(),
            rst: tcp.rst(),
        })
    }
}

/// How far one direction of a connection got.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Behind the last byte that the sender sent.
    sent: u32,
    /// Behind the last byte that was handed to the receiver.
    handed: Option<u32>,
    /// What the sender expects next.
    ack: Option<u32>,
    /// The sender will send no more.
    pub ended: bool,
    /// The sender gave the connection up.
    over: bool,
    /// What is sent is answered with a RST.
    reset: bool,
    /// Counts segments: when this was seen last.
    seen: u64,
}

impl Progress {
    /// Did the sender give the connection up?
    pub fn is_over(&self) -> bool {
        self.over
    }
}

/// The connections of one direction.
#[derive(Debug, Default)]
pub struct Flows {
    flows: HashMap<Flow, Progress>,
    seen: u64,
}

impl Flows {
    /// Notes a segment that an end sends. False when its connection was reset: then it goes no further.
    pub fn sent(&mut self, segment: &Segment) -> bool {
        self.seen += 1;
        if self.flows.len() >= FLOWS_MAX && !self.flows.contains_key(&segment.flow) {
            self.forget();
        }
        let progress = self.flows.entry(segment.flow).or_insert(Progress { sent: segment.end, ..Progress::default() });
        if segment.syn {
            // Opened anew, from the same port. A second SYN of the same opening says the same again.
            *progress = Progress { sent: segment.end, ..Progress::default() };
        }
        progress.seen = self.seen;
        progress.ended |= segment.fin;
        progress.over |= segment.rst;
        progress.ack = segment.ack.or(progress.ack);
        if is_after(segment.end, progress.sent) {
            progress.sent = segment.end;
        }
        !progress.reset
    }

    /// Notes a segment that is handed to the other end. False when its connection was reset: then it must not be.
    pub fn handed(&mut self, segment: &Segment) -> bool {
        let Some(progress) = self.flows.get_mut(&segment.flow) else { return true };
        if progress.reset {
            return false;
        }
        if progress.handed.is_none_or(|handed| is_after(segment.end, handed)) {
            progress.handed = Some(segment.end);
        }
        true
    }

    /// Resets the connections with that port, or all: from now on their segments go no further. Returns them as they are.
    pub fn reset(&mut self, port: Option<u16>) -> Vec<(Flow, Progress)> {
        let meant = |flow: &Flow| port.is_none_or(|port| flow.has_port(port));
        let open = self.flows.iter_mut().filter(|(flow, progress)| meant(flow) && !progress.reset);
        open.map(|(flow, progress)| {
            progress.reset = true;
            (*flow, *progress)
        })
        .collect()
    }

    /// All connections that were not reset, with what is known of them.
    pub fn open(&self) -> impl Iterator<Item = (Flow, Progress)> + '_ {
        self.flows.iter().filter(|(_, progress)| !progress.reset).map(|(flow, progress)| (*flow, *progress))
    }

    /// Makes room: forgets the half seen longest ago.
    fn forget(&mut self) {
        let mut seen: Vec<u64> = self.flows.values().map(|progress| progress.seen).collect();
        let middle = seen.len() / 2;
        let (_, &mut median, _) = seen.select_nth_unstable(middle);
        self.flows.retain(|_, progress| progress.seen > median);
    }
}

/// Does a number come behind another, in a space that begins anew at its end? RFC 9293, section 3.4.
fn is_after(number: u32, other: u32) -> bool {
    (1..1 << 31).contains(&number.wrapping_sub(other))
}

/// The RST segments that end a connection at the end from which `flow` leads away. `there` is what that end sent, `back` what was
/// sent to it.
pub fn resets(flow: Flow, there: Option<Progress>, back: Option<Progress>) -> Vec<Vec<u8>> {
    // It expects what it acknowledged, or, when it has not yet acknowledged all, what it was handed.
    let expected = [there.and_then(|there| there.ack), back.and_then(|back| back.handed)];
    let ack = there.map(|there| there.sent);
    let mut numbers: Vec<u32> = expected.into_iter().flatten().collect();
    numbers.dedup();
    if numbers.is_empty() && there.is_some() {
        // It opens the connection, and knows no number of the other end yet: the ACK alone counts, RFC 9293 section 3.10.7.3.
        numbers.push(0);
    }
    numbers.into_iter().map(|number| rst(flow.back(), number, ack)).collect()
}

/// The RST that answers a segment of a connection that was reset.
pub fn resent(segment: &Segment) -> Vec<u8> {
    rst(segment.flow.back(), segment.ack.unwrap_or(0), Some(segment.end))
}

fn rst(flow: Flow, number: u32, ack: Option<u32>) -> Vec<u8> {
    let octets = |address: Ipv4Addr| address.octets();
    let builder = PacketBuilder::ipv4(octets(*flow.from.ip()), octets(*flow.to.ip()), TIME_TO_LIVE);
    let mut builder = builder.tcp(flow.from.port(), flow.to.port(), number, 0).rst();
    if let Some(ack) = ack {
        builder = builder.ack(ack);
    }
    let mut packet = Vec::with_capacity(builder.size(0));
    // Into a Vec nothing fails, and a segment without data fits every length field.
    let written = builder.write(&mut packet, &[]);
    debug_assert!(written.is_ok());
    packet
}

#[cfg(test)]
#[path = "flows/tests.rs"]
mod tests;
