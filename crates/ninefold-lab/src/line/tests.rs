//! A line in virtual time: nobody waits, and every figure is exact.

use std::time::Duration;

use super::*;

const MS: u64 = 1_000_000;

fn packet(bytes: usize) -> Vec<u8> {
    vec![0; bytes]
}

/// Everything that arrives, with its instant, looked for at each instant the line asks for.
fn drain(line: &mut Line) -> Vec<(u64, usize)> {
    let mut out = Vec::new();
    while let Some(wake) = line.wake() {
        while let Some((due, packet)) = line.take(wake) {
            assert_eq!(due.max(wake), wake, "due before it was asked for");
            out.push((due, packet.len()));
        }
    }
    out
}

/// Offered is what it became, whatever happened.
fn balanced(line: &Line) {
    let all = line.counters();
    for part in [|count: Count| count.packets, |count: Count| count.bytes] {
        let sum: u64 = [all.delivered, all.lost, all.queue_full, all.cut, all.reset, all.overrun, all.on_the_way]
            .map(part)
            .iter()
            .sum();
        assert_eq!(part(all.offered), sum, "{all:?}");
    }
}

#[test]
fn a_perfect_line_hands_out_at_once_and_in_order() {
    let mut line = Line::new(Shape::default(), 0);
    for bytes in [100, 200, 300] {
        line.offer(5, packet(bytes));
    }
    assert_eq!(drain(&mut line), [(5, 100), (5, 200), (5, 300)]);
    balanced(&line);
}

#[test]
fn a_packet_takes_its_bits_at_the_rate_and_then_the_delay() {
    // 1250 bytes are 10,000 bits: 1 ms at 10 Mbit/s.
    let shape = Shape { rate: Some(10_000_000), delay: Duration::from_millis(25), ..Shape::default() };
    let mut line = Line::new(shape, 0);
    line.offer(0, packet(1250));
    line.offer(0, packet(1250));
    line.offer(10 * MS, packet(1250));
    assert_eq!(drain(&mut line), [(26 * MS, 1250), (27 * MS, 1250), (36 * MS, 1250)]);
}

#[test]
fn times_do_not_depend_on_when_somebody_looks() {
    let shape = Shape {
        rate: Some(3_000_000),
        delay: Duration::from_millis(7),
        jitter: Duration::from_millis(2),
        loss: 0.1,
        reorder: 0.1,
        ..Shape::default()
    };
    let run = |look_every: Option<u64>| {
        let mut line = Line::new(shape, 42);
        let mut out = Vec::new();
        for i in 0..500_u64 {
            line.offer(i * MS / 2, packet(100 + (i % 7) as usize));
            if look_every.is_some_and(|every| i % every == 0) {
                while let Some((due, packet)) = line.take(i * MS / 2) {
                    out.push((due, packet.len()));
                }
            }
        }
        out.extend(drain(&mut line));
        balanced(&line);
        out
    };
    let never = run(None);
    assert!(never.len() > 300);
    assert_eq!(run(Some(1)), never);
    assert_eq!(run(Some(13)), never);
}

#[test]
fn a_packet_that_does_not_fit_the_queue_is_dropped_and_counted() {
    let slow = Shape { rate: Some(8_000), ..Shape::default() };
    for queue in [Queue::Packets(2), Queue::Bytes(250)] {
        let mut line = Line::new(Shape { queue, ..slow }, 0);
        for _ in 0..5 {
            line.offer(0, packet(100));
        }
        // One is on the wire, two wait.
        let counters = line.counters();
        assert_eq!((counters.on_the_way.packets, counters.queue_full.packets, counters.queue_full.bytes), (3, 2, 200));
        assert_eq!(drain(&mut line).len(), 3);
        balanced(&line);
    }
}

#[test]
fn without_a_queue_an_idle_link_still_carries_a_packet() {
    let mut line = Line::new(Shape { rate: Some(8_000), queue: Queue::Packets(0), ..Shape::default() }, 0);
    line.offer(0, packet(100));
    line.offer(50 * MS, packet(100)); // The first takes 100 ms.
    line.offer(100 * MS, packet(100));
    assert_eq!(drain(&mut line), [(100 * MS, 100), (200 * MS, 100)]);
}

#[test]
fn loss_is_the_share_asked_for_within_five_standard_deviations() {
    let packets = 1_000_000;
    for loss in [0.001, 0.01, 0.5] {
        for seed in 0..5 {
            let mut line = Line::new(Shape { loss, ..Shape::default() }, seed);
            for i in 0..packets {
                line.offer(i, packet(1));
                while line.take(i).is_some() {}
            }
            let lost = line.counters().lost.packets as f64;
            let expected = packets as f64 * loss;
            let deviation = (expected * (1.0 - loss)).sqrt();
            assert!((lost - expected).abs() < 5.0 * deviation, "{lost} of {packets} lost at {loss}");
            balanced(&line);
        }
    }
}

#[test]
fn the_same_seed_loses_the_same_packets_and_another_seed_loses_others() {
    let lost = |seed, jitter| {
        let mut line = Line::new(Shape { loss: 0.3, jitter, ..Shape::default() }, seed);
        let mut lost = Vec::new();
        for i in 0..1000 {
            line.offer(i, packet(1));
            lost.push(line.counters().lost.packets);
        }
        lost
    };
    assert_eq!(lost(1, Duration::ZERO), lost(1, Duration::ZERO));
    // One kind of chance does not shift another.
    assert_eq!(lost(1, Duration::ZERO), lost(1, Duration::from_millis(1)));
    assert_ne!(lost(1, Duration::ZERO), lost(2, Duration::ZERO));
}

#[test]
fn jitter_adds_up_to_what_was_asked_and_keeps_the_order() {
    let shape = Shape { delay: Duration::from_millis(10), jitter: Duration::from_millis(4), ..Shape::default() };
    let mut line = Line::new(shape, 3);
    for i in 0..1000 {
        line.offer(i * 100 * MS, packet(i as usize));
    }
    let out = drain(&mut line);
    let extra: Vec<u64> = (0..1000).map(|i| out[i].0 - i as u64 * 100 * MS - 10 * MS).collect();
    assert!(extra.iter().all(|extra| *extra <= 4 * MS));
    // Equally likely: a thousand of them reach into the first and the last tenth.
    assert!(extra.iter().any(|extra| *extra < 4 * MS / 10) && extra.iter().any(|extra| *extra > 4 * MS / 10 * 9));
    let mut line = Line::new(shape, 3);
    for i in 0..1000 {
        line.offer(i, packet(i as usize));
    }
    assert!(drain(&mut line).is_sorted_by_key(|(_, number)| *number));
}

#[test]
fn a_packet_held_back_is_overtaken_and_arrives() {
    let shape = Shape { reorder: 0.5, reorder_by: Duration::from_millis(1), ..Shape::default() };
    let mut line = Line::new(shape, 7);
    for i in 0..100 {
        line.offer(i * MS / 10, packet(i as usize));
    }
    let out = drain(&mut line);
    assert_eq!(out.len(), 100);
    assert!(out.is_sorted_by_key(|(due, _)| *due));
    let overtaken = out.windows(2).filter(|pair| pair[0].1 > pair[1].1).count();
    let reordered = line.counters().reordered.packets;
    assert!((20..80).contains(&reordered) && overtaken > 10, "{reordered} held back, {overtaken} overtaken");
}

#[test]
fn a_cut_drops_what_is_on_its_way_and_what_comes_until_it_is_healed() {
    let shape = Shape { delay: Duration::from_millis(10), rate: Some(8_000_000), ..Shape::default() };
    let mut line = Line::new(shape, 0);
    for _ in 0..20 {
        line.offer(0, packet(1000)); // 1 ms each
    }
    assert!(line.take(10 * MS).is_none());
    assert!(line.take(11 * MS).is_some());
    line.cut(11 * MS);
    assert_eq!((line.wake(), line.counters().cut.packets), (None, 19));
    line.offer(12 * MS, packet(1000));
    assert_eq!((line.wake(), line.counters().cut.packets), (None, 20));
    line.heal();
    line.offer(13 * MS, packet(1000));
    assert_eq!(drain(&mut line), [(24 * MS, 1000)]);
    balanced(&line);
}

#[test]
fn a_new_rate_holds_for_those_that_wait_and_a_shorter_delay_lets_nobody_overtake() {
    let shape = Shape { delay: Duration::from_millis(100), rate: Some(8_000), ..Shape::default() };
    let mut line = Line::new(shape, 0);
    line.offer(0, packet(10)); // 10 ms
    line.offer(0, packet(20));
    line.set(5 * MS, Shape { rate: Some(8_000_000), delay: Duration::from_millis(1), ..shape });
    // The first was on the wire already; the second would be there at 11.02 ms.
    assert_eq!(drain(&mut line), [(110 * MS, 10), (110 * MS, 20)]);
}

#[test]
fn what_is_held_is_bounded_whatever_the_shape() {
    let mut line = Line::new(Shape { delay: Duration::from_secs(60), ..Shape::default() }, 0);
    // So large that the allocator maps them and nobody touches them.
    let (piece, pieces) = (8 << 20, HELD_MAX >> 23);
    for _ in 0..pieces + 3 {
        line.offer(0, packet(piece));
    }
    let counters = line.counters();
    // One fits less than without what each takes beside its bytes.
    assert_eq!((counters.on_the_way.bytes, counters.overrun.packets), (HELD_MAX - piece as u64, 4));
    balanced(&line);
    // What is left is for small ones, twenty bytes of header each, by what they take as well.
    let left = HELD_MAX - counters.on_the_way.bytes - counters.on_the_way.packets * OVERHEAD;
    for _ in 0..left / (OVERHEAD + 20) + 7 {
        line.offer(0, packet(20));
    }
    let small = line.counters().on_the_way.packets - counters.on_the_way.packets;
    assert_eq!(small, left / (OVERHEAD + 20));
    balanced(&line);
}

#[test]
fn what_comes_after_a_cut_does_not_wait_for_what_was_cut() {
    let shape = Shape { delay: Duration::from_secs(60), ..Shape::default() };
    let mut line = Line::new(shape, 0);
    line.offer(0, packet(10));
    line.cut(MS);
    line.set(MS, Shape { delay: Duration::from_millis(5), ..shape });
    line.heal();
    line.offer(2 * MS, packet(20));
    assert_eq!(drain(&mut line), [(7 * MS, 20)]);
    balanced(&line);
}

#[test]
fn a_packet_held_back_overtakes_none_that_is_on_the_wire() {
    let far = Shape { delay: Duration::from_millis(100), ..Shape::default() };
    let mut line = Line::new(far, 0);
    line.offer(0, packet(1));
    let near = Shape { delay: Duration::ZERO, reorder: 1.0, reorder_by: Duration::from_millis(2), ..far };
    line.set(0, near);
    line.offer(0, packet(2));
    line.set(0, Shape { reorder: 0.0, ..near });
    line.offer(MS, packet(3));
    assert_eq!(drain(&mut line), [(100 * MS, 1), (100 * MS, 3), (102 * MS, 2)]);
}

#[test]
fn no_time_is_lost_by_rounding() {
    // A byte takes 8/3 ns: a thousand of them 2666.67 ns.
    let mut line = Line::new(Shape { rate: Some(3_000_000_000), ..Shape::default() }, 0);
    for _ in 0..1000 {
        line.offer(0, packet(1));
    }
    assert_eq!(drain(&mut line).last(), Some(&(2666, 1)));
    // After a pause the link begins anew.
    line.offer(10_000, packet(1));
    assert_eq!(drain(&mut line), [(10_002, 1)]);
}

#[test]
fn a_shape_beyond_its_bounds_panics_nowhere() {
    let beyond = Shape {
        delay: Duration::MAX,
        jitter: Duration::MAX,
        rate: Some(0),
        queue: Queue::Bytes(u64::MAX),
        loss: f64::NAN,
        reorder: f64::INFINITY,
        reorder_by: Duration::MAX,
    };
    for shape in [beyond, Shape { reorder: -1.0, ..beyond }, Shape { delay: Duration::ZERO, ..beyond }] {
        assert!(shape.check().is_err());
        let mut line = Line::new(shape, 0);
        for i in 0..100 {
            line.offer(i, packet(1500));
        }
        assert!(line.take(1000).is_none());
        balanced(&line);
    }
}

#[test]
fn what_a_reset_takes_is_counted_apart() {
    let mut line = Line::new(Shape::default(), 0);
    line.refuse(40);
    line.offer(0, packet(60));
    let (_, packet) = line.take(0).unwrap();
    line.refused(packet.len());
    assert_eq!(line.counters().reset, Count { packets: 2, bytes: 100 });
    balanced(&line);
}
