//! What a lab's link does to real connections. Nothing here is judged by how fast it was: delays and rates by what they must at
//! least take, all else by counters.

mod support;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ninefold_lab::units::Queue;
use ninefold_lab::{Change, Direction, End, InvalidShape, Lab, Options, Shape};
use rustix::process::{Pid, Signal, kill_process};
use support::{Peer, connected, keepers, lab, until, until_stats};

/// IPv4's and UDP's headers, in bytes: RFC 791 and RFC 768.
const HEADERS: u64 = 20 + 8;

/// Sends datagrams from the client's end to the server's, where a socket takes them.
fn datagrams(lab: &Lab, count: u64, bytes: u64) -> (Peer, Peer) {
    let (mut client, mut server) = (Peer::start(lab, End::Client), Peer::start(lab, End::Server));
    assert_eq!(server.ask("bind 9"), "bound");
    assert_eq!(client.ask(&format!("datagrams {}:9 {count} {bytes}", lab.address(End::Server))), "sent");
    (client, server)
}

#[test]
fn the_counters_have_every_packet_and_byte() {
    let Some(lab) = lab("the_counters_have_every_packet_and_byte", Options::default()) else { return };
    let _peers = datagrams(&lab, 1000, 100);
    let stats = until_stats(&lab, "a thousand datagrams", |stats| stats.to_server.counters.delivered.packets == 1000);
    let counters = stats.to_server.counters;
    assert_eq!((counters.offered.packets, counters.offered.bytes), (1000, 1000 * (100 + HEADERS)));
    assert_eq!((counters.delivered, counters.on_the_way.packets, stats.to_server.missed), (counters.offered, 0, 0));
    assert_eq!(stats.to_client.counters.offered.packets, 0);
}

#[test]
fn a_share_of_the_packets_is_lost_in_the_direction_that_was_asked_for_it() {
    let name = "a_share_of_the_packets_is_lost_in_the_direction_that_was_asked_for_it";
    let shape = Shape { loss: 0.1, ..Shape::default() };
    let Some(lab) = lab(name, Options { to_server: shape, ..Options::default() }) else { return };
    let sent = 20_000;
    let _peers = datagrams(&lab, sent, 10);
    let stats = until_stats(&lab, "all datagrams", |stats| {
        let counters = stats.to_server.counters;
        counters.offered.packets + stats.to_server.missed == sent && counters.on_the_way.packets == 0
    });
    let counters = stats.to_server.counters;
    assert_eq!(counters.lost.packets + counters.delivered.packets, counters.offered.packets);
    let expected = counters.offered.packets as f64 * 0.1;
    let deviation = (expected * 0.9).sqrt();
    assert!((counters.lost.packets as f64 - expected).abs() < 5.0 * deviation, "{counters:?}");
}

#[test]
fn a_round_trip_takes_at_least_both_delays() {
    let delayed = |milliseconds| Shape { delay: Duration::from_millis(milliseconds), ..Shape::default() };
    let options = Options { to_server: delayed(30), to_client: delayed(10), ..Options::default() };
    let Some(lab) = lab("a_round_trip_takes_at_least_both_delays", options) else { return };
    let begin = Instant::now();
    let (mut client, mut server) = connected(&lab, 5640);
    assert!(begin.elapsed() >= Duration::from_millis(40));
    server.order("echo");
    let mut trip = |least: Duration| {
        let answer = client.ask("trip");
        let nanoseconds: u64 = answer.strip_prefix("trip ").expect(&answer).parse().unwrap();
        assert!(Duration::from_nanos(nanoseconds) >= least, "{nanoseconds} ns");
    };
    for _ in 0..10 {
        trip(Duration::from_millis(40));
    }
    lab.set(Direction::ToServer, Change { delay: Some(Duration::from_millis(80)), ..Change::default() }).unwrap();
    for _ in 0..3 {
        trip(Duration::from_millis(90));
    }
}

#[test]
fn data_take_at_least_their_bits_at_the_rate() {
    let shape = Shape { rate: Some(8_000_000), ..Shape::default() };
    let Some(lab) = lab("data_take_at_least_their_bits_at_the_rate", Options::both(shape)) else { return };
    let (mut client, mut server) = connected(&lab, 5640);
    let begin = Instant::now();
    client.order("send 300000");
    assert_eq!(server.ask("read 300000"), "read");
    // 300,000 bytes at a million bytes in a second, and nothing that the link held before.
    assert!(begin.elapsed() >= Duration::from_millis(300), "{:?}", begin.elapsed());
}

#[test]
fn what_does_not_fit_the_queue_is_dropped_and_the_rest_goes_when_the_rate_is_lifted() {
    let name = "what_does_not_fit_the_queue_is_dropped_and_the_rest_goes_when_the_rate_is_lifted";
    // A datagram of 128 bytes takes a second.
    let shape = Shape { rate: Some(1024), queue: Queue::Packets(5), ..Shape::default() };
    let Some(lab) = lab(name, Options { to_server: shape, ..Options::default() }) else { return };
    let _peers = datagrams(&lab, 100, 100);
    let stats = until_stats(&lab, "all datagrams", |stats| stats.to_server.counters.offered.packets == 100);
    assert!(stats.to_server.counters.queue_full.packets > 0, "{stats:?}");
    let unlimited = Change { rate: Some(None), ..Change::default() };
    lab.set(Direction::ToServer, unlimited).unwrap();
    let stats = until_stats(&lab, "an empty link", |stats| stats.to_server.counters.on_the_way.packets == 0);
    let counters = stats.to_server.counters;
    assert_eq!(counters.delivered.packets + counters.queue_full.packets, 100);
    assert!(counters.delivered.packets >= 6, "{counters:?}");
}

#[test]
fn a_cut_direction_carries_nothing_and_the_other_goes_on_until_it_is_healed() {
    let name = "a_cut_direction_carries_nothing_and_the_other_goes_on_until_it_is_healed";
    let Some(lab) = lab(name, Options::default()) else { return };
    let (mut client, mut server) = connected(&lab, 5640);
    lab.cut(Direction::ToServer).unwrap();
    let before = lab.stats().unwrap().to_server;
    assert!(before.is_cut);
    assert_eq!(client.ask("send 1"), "sent");
    // The server's end is heard, although it hears no acknowledgement.
    assert_eq!(server.ask("send 1"), "sent");
    assert_eq!(client.ask("read 1"), "read");
    server.order("read 1");
    let stats = until_stats(&lab, "a dropped packet", |stats| stats.to_server.counters.cut.packets > 0);
    assert_eq!(stats.to_server.counters.delivered, before.counters.delivered);
    assert_eq!(server.has_answered(), None);
    lab.heal(Direction::ToServer).unwrap();
    assert_eq!(server.answer(), "read");

    lab.cut(Direction::ToClient).unwrap();
    assert_eq!(client.ask("send 1"), "sent");
    assert_eq!(server.ask("read 1"), "read");
    lab.heal(Direction::ToClient).unwrap();
}

#[test]
fn both_ends_of_a_connection_that_is_reset_see_it_and_others_do_not() {
    let name = "both_ends_of_a_connection_that_is_reset_see_it_and_others_do_not";
    // So far that a RST from the other end would take longer than anything here waits.
    let shape = Shape { delay: Duration::from_millis(50), ..Shape::default() };
    let Some(lab) = lab(name, Options::both(shape)) else { return };
    let (mut client, mut server) = connected(&lab, 5640);
    let (mut other_client, mut other_server) = connected(&lab, 5641);
    assert_eq!(lab.stats().unwrap().connections.len(), 2);
    client.order("read 1");
    server.order("read 1");
    assert_eq!(lab.reset(Some(5640)).unwrap(), 1);
    assert_eq!(client.answer(), "error ConnectionReset");
    assert_eq!(server.answer(), "error ConnectionReset");
    assert_eq!(other_client.ask("send 1"), "sent");
    assert_eq!(other_server.ask("read 1"), "read");
    assert_eq!(lab.stats().unwrap().connections.len(), 1);
    // It does not stay away: another connection to the port is as good as ever.
    let (mut client, mut server) = connected_again(&lab, server);
    assert_eq!(client.ask("send 1"), "sent");
    assert_eq!(server.ask("read 1"), "read");
    assert_eq!(lab.reset(None).unwrap(), 2);
    for peer in [&mut client, &mut server, &mut other_client, &mut other_server] {
        assert_eq!(peer.ask("read 1"), "error ConnectionReset");
    }
    assert_eq!(lab.reset(None).unwrap(), 0);
}

/// A further connection to a server that listens.
fn connected_again(lab: &Lab, mut server: Peer) -> (Peer, Peer) {
    let mut client = Peer::start(lab, End::Client);
    server.order("accept");
    assert!(client.ask(&format!("connect {}:5640", lab.address(End::Server))).starts_with("connected "));
    assert!(server.answer().starts_with("accepted "));
    (client, server)
}

#[test]
fn a_connection_with_data_on_the_way_is_reset_at_once_at_both_ends() {
    let name = "a_connection_with_data_on_the_way_is_reset_at_once_at_both_ends";
    let shape = Shape { delay: Duration::from_millis(20), rate: Some(50_000_000), ..Shape::default() };
    let Some(lab) = lab(name, Options::both(shape)) else { return };
    for port in 5640..5645 {
        let (mut client, mut server) = connected(&lab, port);
        client.order("send 100000000");
        server.order("read 100000000");
        let delivered = lab.stats().unwrap().to_server.counters.delivered.packets;
        until_stats(&lab, "data", |stats| stats.to_server.counters.delivered.packets > delivered + 100);
        assert_eq!(lab.reset(Some(port)).unwrap(), 1);
        assert_eq!(client.answer(), "error ConnectionReset");
        assert_eq!(server.answer(), "error ConnectionReset");
    }
}

#[test]
fn packets_that_are_held_back_arrive_behind_others() {
    let name = "packets_that_are_held_back_arrive_behind_others";
    let shape = Shape { reorder: 0.5, reorder_by: Duration::from_millis(50), ..Shape::default() };
    let Some(lab) = lab(name, Options { to_server: shape, seed: 1, ..Options::default() }) else { return };
    // So few that the socket holds them all.
    let (_client, mut server) = datagrams(&lab, 50, 10);
    assert_eq!(server.ask("take 50"), "took mixed");
    let held_back = lab.stats().unwrap().to_server.counters.reordered.packets;
    assert!((10..40).contains(&held_back), "{held_back}");
}

#[test]
fn packets_that_take_longer_by_chance_keep_their_order() {
    let shape = Shape { jitter: Duration::from_millis(20), ..Shape::default() };
    let options = Options { to_server: shape, ..Options::default() };
    let Some(lab) = lab("packets_that_take_longer_by_chance_keep_their_order", options) else { return };
    let (_client, mut server) = datagrams(&lab, 50, 10);
    assert_eq!(server.ask("take 50"), "took straight");
}

#[test]
fn what_cannot_be_is_refused_and_leaves_the_link_as_it_was() {
    let name = "what_cannot_be_is_refused_and_leaves_the_link_as_it_was";
    let Some(lab) = lab(name, Options::default()) else { return };
    let before = lab.stats().unwrap();
    let wrong = Change { rate: Some(Some(0)), delay: Some(Duration::from_millis(1)), ..Change::default() };
    for result in [lab.set(Direction::ToServer, wrong), lab.set_both(wrong)] {
        assert_eq!(result.unwrap_err().downcast_ref(), Some(&InvalidShape::Rate(0)));
    }
    let after = lab.stats().unwrap();
    assert_eq!((after.to_server.shape, after.to_client.shape), (before.to_server.shape, before.to_client.shape));
    let shape = Shape { loss: 1.5, ..Shape::default() };
    let error = Lab::start(&Options { program: Some(support::BENCH.into()), ..Options::both(shape) }).err().unwrap();
    assert_eq!(error.downcast_ref(), Some(&InvalidShape::Share(1.5)));
    let error = Lab::start(&Options { mtu: 100, ..Options::default() }).err().unwrap();
    assert!(error.to_string().contains("MTU of 100"), "{error:#}");
}

#[test]
fn an_opening_that_is_not_answered_is_no_connection() {
    let Some(lab) = lab("an_opening_that_is_not_answered_is_no_connection", Options::default()) else { return };
    lab.cut(Direction::ToServer).unwrap();
    let mut client = Peer::start(&lab, End::Client);
    client.order(&format!("connect {}:5640", lab.address(End::Server)));
    until_stats(&lab, "an opening", |stats| stats.to_server.counters.cut.packets > 0);
    assert_eq!(lab.stats().unwrap().connections, []);
    assert_eq!(lab.reset(None).unwrap(), 0);
    // Its end hears of the reset all the same.
    assert_eq!(client.answer(), "error ConnectionRefused");
}

#[test]
fn a_frozen_end_does_nothing_but_its_kernel_acknowledges() {
    let name = "a_frozen_end_does_nothing_but_its_kernel_acknowledges";
    let Some(lab) = lab(name, Options::default()) else { return };
    let (mut client, mut server) = connected(&lab, 5640);
    server.order("echo");
    assert!(client.ask("trip").starts_with("trip "));
    assert_eq!(lab.freeze(End::Server).unwrap(), 1);
    let before = lab.stats().unwrap().to_client.counters.delivered.packets;
    client.order("trip");
    until_stats(&lab, "an acknowledgement", |stats| stats.to_client.counters.delivered.packets > before);
    assert_eq!(client.has_answered(), None);
    assert_eq!(lab.thaw(End::Server).unwrap(), 1);
    assert!(client.answer().starts_with("trip "));
}

#[test]
fn how_long_the_link_did_not_look_for_packets_is_told_although_none_was_due() {
    let name = "how_long_the_link_did_not_look_for_packets_is_told_although_none_was_due";
    let shape = Shape { delay: Duration::from_secs(60), ..Shape::default() };
    let Some(lab) = lab(name, Options::both(shape)) else { return };
    let mut client = Peer::start(&lab, End::Client);
    let send = format!("datagrams {}:9 1 100", lab.address(End::Server));
    assert_eq!(client.ask(&send), "sent");
    let before = until_stats(&lab, "a datagram on the way", |stats| stats.to_server.counters.on_the_way.packets == 1);
    let words = |path: &PathBuf| std::fs::read(path.join("cmdline")).unwrap();
    let is_second = |path: &PathBuf| String::from_utf8_lossy(&words(path)).contains("keep-inner");
    let keeper = keepers(lab.name()).into_iter().find(is_second).expect("the lab's second process");
    let pid = Pid::from_raw(keeper.file_name().unwrap().to_str().unwrap().parse().unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    until("all of its threads to stop", || {
        let threads = std::fs::read_dir(keeper.join("task")).unwrap();
        let is_stopped =
            |path: PathBuf| std::fs::read_to_string(path.join("status")).unwrap_or_default().contains("State:\tT");
        threads.flatten().all(|thread| is_stopped(thread.path())).then_some(())
    });
    let stopped = Instant::now();
    // It wakes the link before the other is due.
    assert_eq!(client.ask(&send), "sent");
    std::thread::sleep(Duration::from_millis(200));
    let stopped = stopped.elapsed();
    kill_process(pid, Signal::CONT).unwrap();
    let stats = until_stats(&lab, "both on the way", |stats| stats.to_server.counters.on_the_way.packets == 2);
    let told = Duration::from_nanos(stats.to_server.care.unwatched_ns);
    assert!(told + Duration::from_millis(1) >= stopped, "{stopped:?}: {:?}, {:?}", before.to_server, stats.to_server);
}

#[test]
fn the_same_seed_draws_the_same_fate_again() {
    let shape = Shape { loss: 0.5, ..Shape::default() };
    let options = Options { seed: 7, ..Options::both(shape) };
    let Some(lab) = lab("the_same_seed_draws_the_same_fate_again", options) else { return };
    let (mut client, mut server) = (Peer::start(&lab, End::Client), Peer::start(&lab, End::Server));
    assert_eq!(server.ask("bind 9"), "bound");
    let send = format!("datagrams {}:9 100 10", lab.address(End::Server));
    // How many of the next datagrams are lost, one lot after the other.
    let mut offered = 0;
    let mut lost = || {
        let counters = || lab.stats().unwrap().to_server.counters;
        let before = counters().lost.packets;
        [(); 4].map(|()| {
            assert_eq!(client.ask(&send), "sent");
            offered += 100;
            until_stats(&lab, "all datagrams", |stats| stats.to_server.counters.offered.packets == offered);
            counters().lost.packets - before
        })
    };
    let first = lost();
    let other = lost();
    lab.reseed(7).unwrap();
    assert_eq!(lost(), first);
    assert_ne!(other, first, "without it chance goes on");
}
