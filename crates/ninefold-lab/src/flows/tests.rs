//! Segments as the kernel makes them, and the resets that are made of them.

use etherparse::TcpHeader;

use super::*;

const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 1), 40_000);
const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 2), 5640);
const THERE: Flow = Flow { from: CLIENT, to: SERVER };

/// A packet with a TCP segment.
fn packet(flow: Flow, number: u32, ack: Option<u32>, data: usize, flags: impl Fn(&mut TcpHeader)) -> Vec<u8> {
    let mut tcp = TcpHeader::new(flow.from.port(), flow.to.port(), number, 1000);
    (tcp.ack, tcp.acknowledgment_number) = (ack.is_some(), ack.unwrap_or(0));
    flags(&mut tcp);
    let builder = PacketBuilder::ipv4(flow.from.ip().octets(), flow.to.ip().octets(), 64).tcp_header(tcp);
    let mut packet = Vec::new();
    builder.write(&mut packet, &vec![0; data]).unwrap();
    packet
}

fn segment(flow: Flow, number: u32, ack: u32, data: usize) -> Segment {
    Segment::of(&packet(flow, number, Some(ack), data, |_| {})).unwrap()
}

/// Number, acknowledgement and ports of a RST.
fn read(packet: &[u8]) -> (Flow, u32, Option<u32>) {
    let segment = Segment::of(packet).unwrap();
    assert!(segment.rst);
    (segment.flow, segment.end, segment.ack)
}

#[test]
fn a_segment_ends_behind_its_data_and_syn_and_fin_count_as_one() {
    assert_eq!(segment(THERE, 1000, 7, 500).end, 1500);
    assert_eq!(segment(THERE, u32::MAX - 9, 7, 20).end, 10);
    assert_eq!(Segment::of(&packet(THERE, 1, None, 0, |tcp| tcp.syn = true)).unwrap().end, 2);
    assert_eq!(Segment::of(&packet(THERE, 1, Some(3), 10, |tcp| tcp.fin = true)).unwrap().end, 12);
}

#[test]
fn what_is_no_segment_is_none_however_it_is_cut_or_bent() {
    let whole = packet(THERE, 1, Some(2), 100, |_| {});
    for length in 0..40 {
        assert_eq!(Segment::of(&whole[..length]), None, "{length}");
    }
    let mut chance = fastrand::Rng::with_seed(1);
    for _ in 0..20_000 {
        let mut bent = whole.clone();
        for _ in 0..3 {
            bent[chance.usize(..40)] = chance.u8(..);
        }
        // Whatever it is taken for, nothing panics.
        let _ = Segment::of(&bent);
    }
}

#[test]
fn each_end_is_reset_with_the_number_that_it_expects() {
    let (mut there, mut back) = (Flows::default(), Flows::default());
    // The client has sent up to 1500 and acknowledged 700; of that the server was handed 1200, and it acknowledged 1000.
    assert!(there.sent(&segment(THERE, 1000, 700, 500)));
    assert!(there.handed(&segment(THERE, 1000, 700, 200)));
    assert!(back.sent(&segment(THERE.back(), 700, 1000, 0)));
    assert!(back.handed(&segment(THERE.back(), 700, 1000, 0)));
    let (there, back) = (there.reset(Some(5640)), back.reset(Some(5640)));
    let ((flow, there), (_, back)) = (there[0], back[0]);
    let at_client: Vec<_> = resets(flow, Some(there), Some(back)).iter().map(|packet| read(packet)).collect();
    assert_eq!(at_client, [(THERE.back(), 700, Some(1500))]);
    // What it acknowledged and what it was handed differ: one of them it is.
    let at_server: Vec<_> = resets(flow.back(), Some(back), Some(there)).iter().map(|packet| read(packet)).collect();
    assert_eq!(at_server, [(THERE, 1000, Some(700)), (THERE, 1200, Some(700))]);
}

#[test]
fn a_connection_that_is_being_opened_is_reset_by_its_acknowledgement() {
    let mut there = Flows::default();
    there.sent(&Segment::of(&packet(THERE, 41, None, 0, |tcp| tcp.syn = true)).unwrap());
    let open = there.reset(None);
    assert_eq!(read(&resets(THERE, Some(open[0].1), None)[0]), (THERE.back(), 0, Some(42)));
}

#[test]
fn what_comes_of_a_connection_that_was_reset_goes_no_further_until_it_is_opened_anew() {
    let mut flows = Flows::default();
    let other = Flow { to: SocketAddrV4::new(*SERVER.ip(), 22), ..THERE };
    assert!(flows.sent(&segment(THERE, 1, 1, 1)) && flows.sent(&segment(other, 1, 1, 1)));
    assert_eq!(flows.reset(Some(5640)).len(), 1);
    assert_eq!(flows.reset(Some(5640)).len(), 0);
    let late = segment(THERE, 2, 9, 10);
    assert!(!flows.sent(&late) && !flows.handed(&late) && flows.sent(&segment(other, 2, 1, 1)));
    assert_eq!(read(&resent(&late)), (THERE.back(), 9, Some(12)));
    let syn = Segment::of(&packet(THERE, 100, None, 0, |tcp| tcp.syn = true)).unwrap();
    assert!(flows.sent(&syn) && flows.handed(&syn));
    assert_eq!(flows.open().count(), 2);
}

#[test]
fn beyond_the_bound_those_seen_longest_ago_are_forgotten() {
    let mut flows = Flows::default();
    let flow = |number: u32| Flow { from: SocketAddrV4::new(Ipv4Addr::from(number), 1), to: SERVER };
    for number in 0..FLOWS_MAX as u32 + 1 {
        flows.sent(&Segment { flow: flow(number), ..segment(THERE, 1, 1, 1) });
    }
    assert!(flows.open().count() <= FLOWS_MAX);
    assert!(flows.open().any(|(open, _)| open == flow(FLOWS_MAX as u32)));
    assert!(!flows.open().any(|(open, _)| open == flow(0)));
}
